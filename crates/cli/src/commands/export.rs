//! `mae export`: model folders to models of other programs.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use mae_data::ParallelDataset;
use mae_data::pairs::detect_languages;
use mae_exchange::export::{self, Folder, HeadWeights};

use crate::data_arg::data_bin;
use crate::device::DeviceArgs;
use crate::exit::ExitCode;
use crate::model_arg::model_folder;

const EXAMPLES: &str = "\
Examples:
  Export a model without gates (BASE, uni-MAE) to CTranslate2:
    mae export ct2 run/checkpoint_best --out ende-ct2

  Export a model with gates: only the heads of expert 3, or the mean gates on a validation set:
    mae export ct2 run/checkpoint_best --expert 3 --out expert3
    mae export ct2 run/checkpoint_best --mean-gates data-bin --out mean

  Export to Hugging Face transformers, or to fairseq:
    mae export hf run/checkpoint_best -s de -t en --out hf
    mae export fairseq run/checkpoint_best -s de -t en --out fairseq

  Export to ONNX, with gates:
    mae export onnx run/checkpoint_best --out onnx";

/// Export a model to CTranslate2, Hugging Face transformers, fairseq or ONNX.
///
/// ONNX keeps gates. The other formats have none: BASE and uni-MAE models are exported exactly; a model with gates is exported with the
/// heads of one expert, or with mean gates, which are folded into the output projections.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    format: Format,
}

#[derive(clap::Subcommand)]
enum Format {
    /// Write a model folder of CTranslate2 (float32).
    #[command(after_help = EXAMPLES)]
    Ct2(Model),
    /// Write a folder of Hugging Face transformers: FSMT, or MarianMT for models of Marian's kind.
    #[command(after_help = EXAMPLES)]
    Hf {
        #[command(flatten)]
        model: Model,
        #[command(flatten)]
        languages: Languages,
    },
    /// Write graphs of ONNX with gates: the encoder, the decoder's first step, and a step with caches.
    #[command(after_help = EXAMPLES)]
    Onnx(Model),
    /// Write a checkpoint of fairseq with its dictionaries.
    #[command(after_help = EXAMPLES)]
    Fairseq {
        #[command(flatten)]
        model: Model,
        #[command(flatten)]
        languages: Languages,
    },
}

#[derive(clap::Args)]
struct Model {
    /// Folder of a translation model, or the folder of a run.
    #[arg(value_parser = model_folder())]
    model: PathBuf,
    /// Folder to write; it must not exist or be empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Export the heads of this expert in all attentions, counted from 0.
    #[arg(long, value_name = "N", conflicts_with = "mean_gates")]
    expert: Option<usize>,
    /// Export mean gates over the split `valid` of this data folder, and print what they cost in bits per token.
    #[arg(long, value_name = "DATA")]
    mean_gates: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(clap::Args)]
struct Languages {
    /// Source language [default: from the model folder; else `src`].
    #[arg(short, long, value_name = "SRC")]
    source_lang: Option<String>,
    /// Target language [default: from the model folder; else `tgt`].
    #[arg(short, long, value_name = "TGT")]
    target_lang: Option<String>,
}

impl Languages {
    fn names<'a>(&'a self, folder: &'a Folder) -> [&'a str; 2] {
        let [source, target] = folder.languages().unwrap_or(["src", "tgt"]);
        [self.source_lang.as_deref().unwrap_or(source), self.target_lang.as_deref().unwrap_or(target)]
    }
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let (out, format) = match &args.format {
        Format::Ct2(model) => {
            let (folder, heads) = model.open_plain()?;
            export::ct2::export(&folder, &heads, &model.out)?;
            (&model.out, "CTranslate2, float32")
        }
        Format::Onnx(model) => {
            let (folder, heads) = model.open()?;
            export::onnx::export(&folder, &heads, &model.out)?;
            (&model.out, "ONNX, operator set 17, float32")
        }
        Format::Hf { model, languages } => {
            let (folder, heads) = model.open_plain()?;
            let kind = export::hf::export(&folder, &heads, languages.names(&folder), &model.out)?;
            let name = match kind {
                export::hf::Kind::Fsmt => "FSMTForConditionalGeneration",
                export::hf::Kind::Marian => "MarianMTModel",
            };
            (&model.out, name)
        }
        Format::Fairseq { model, languages } => {
            let (folder, heads) = model.open_plain()?;
            export::fairseq::export(&folder, &heads, languages.names(&folder), &model.out)?;
            (&model.out, "fairseq")
        }
    };
    println!("{}: {format}", out.display());
    Ok(ExitCode::SUCCESS)
}

impl Model {
    /// The model for a format without gates.
    fn open_plain(&self) -> Result<(Folder, HeadWeights)> {
        let (folder, heads) = self.open()?;
        ensure!(
            heads != HeadWeights::Ones || !folder.config().mixture.system.is_gated(),
            "{} has gates, which this format cannot hold: --expert N exports one expert, --mean-gates DATA the mean \
             gates on a data set; `mae export onnx` keeps gates",
            self.model.display()
        );
        Ok((folder, heads))
    }

    fn open(&self) -> Result<(Folder, HeadWeights)> {
        let folder = Folder::open(&self.model)?;
        let heads = match (&self.expert, &self.mean_gates) {
            (Some(expert), _) => export::expert(&folder, *expert)?,
            (None, Some(data)) => {
                let data = data_bin(data);
                let (from, to) = detect_languages(&data)?;
                let pairs = ParallelDataset::open(&data, "valid", &from, &to)?;
                let (heads, cost) = export::mean_gates(&folder, &pairs, &self.device.open()?)?;
                println!(
                    "mean gates on {} tokens: {:.4} bits per token, {:.4} with gates: they cost {:.4}",
                    cost.tokens,
                    cost.folded,
                    cost.gated,
                    cost.folded - cost.gated
                );
                heads
            }
            (None, None) => HeadWeights::Ones,
        };
        Ok((folder, heads))
    }
}
