//! `mae import`: models of other programs to model folders.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use mae_exchange::{Imported, import};

use crate::exit::ExitCode;

const EXAMPLES: &str = "\
Examples:
  Import an OPUS-MT model that was downloaded from Hugging Face, then translate with it:
    mae import hf opus-mt-de-en --out de-en
    mae generate de-en --source text.de

  Import a checkpoint of fairseq; dict.de.txt, dict.en.txt and bpecodes are in data-bin:
    mae import fairseq checkpoint_best.pt --dicts data-bin --out de-en

  Import a model of CTranslate2:
    mae import ct2 ende_ctranslate2 --out en-de";

/// Import a model of another program: Hugging Face transformers, fairseq or CTranslate2.
///
/// The model is checked as a whole before the folder is written. Parts that are not supported are listed by their keys.
/// Pickles are read as data: nothing in them is ever executed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    format: Format,
}

#[derive(clap::Subcommand)]
enum Format {
    /// Import a folder of Hugging Face transformers: MarianMT (OPUS-MT), FSMT, M2M100.
    #[command(after_help = EXAMPLES)]
    Hf {
        /// Folder with config.json, the weights (model.safetensors or pytorch_model.bin) and the files of the tokeniser.
        folder: PathBuf,
        /// Model folder to write.
        #[arg(long, value_name = "MODEL")]
        out: PathBuf,
    },
    /// Import a checkpoint of fairseq: a translation model or a language model.
    #[command(after_help = EXAMPLES)]
    Fairseq {
        /// Checkpoint (.pt).
        checkpoint: PathBuf,
        /// Folder with dict.LANG.txt (dict.txt for a language model) and, if there are any, BPE codes or a SentencePiece
        /// model [default: the folder of the checkpoint].
        #[arg(long, value_name = "DIR")]
        dicts: Option<PathBuf>,
        /// Model folder to write.
        #[arg(long, value_name = "MODEL")]
        out: PathBuf,
    },
    /// Import a model of CTranslate2 in float32 or float16.
    #[command(after_help = EXAMPLES)]
    Ct2 {
        /// Folder with model.bin and the vocabularies.
        folder: PathBuf,
        /// Model folder to write.
        #[arg(long, value_name = "MODEL")]
        out: PathBuf,
    },
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    let (imported, out) = match args.format {
        Format::Hf { folder, out } => {
            (check(&out).and_then(|()| Ok(import::hf::import(&folder, &out)?))?, out)
        }
        Format::Ct2 { folder, out } => {
            (check(&out).and_then(|()| Ok(import::ct2::import(&folder, &out)?))?, out)
        }
        Format::Fairseq { checkpoint, dicts, out } => {
            check(&out)?;
            let beside =
                checkpoint.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let dicts = dicts.unwrap_or_else(|| beside.to_owned());
            ensure!(
                !checkpoint.is_file() || has_dictionaries(&dicts),
                "{} holds no dictionaries (dict.LANG.txt, or dict.txt of a language model); --dicts DIR names the folder \
                 that does, such as the data-bin of the checkpoint",
                dicts.display()
            );
            (import::fairseq::import(&checkpoint, &dicts, &out)?, out)
        }
    };
    report(&out, &imported);
    Ok(ExitCode::SUCCESS)
}

fn has_dictionaries(folder: &Path) -> bool {
    let is_dictionary = |name: &str| name.starts_with("dict.") && name.ends_with("txt");
    std::fs::read_dir(folder).is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| entry.file_name().to_str().is_some_and(is_dictionary)))
    })
}

/// Refuses to replace a folder that holds anything.
fn check(out: &Path) -> Result<()> {
    ensure!(!out.is_file(), "--out {} is a file; a model is a folder", out.display());
    let is_full = std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!is_full, "--out {} exists and is not empty; name another folder", out.display());
    Ok(())
}

fn report(out: &Path, imported: &Imported) {
    let types: Vec<String> = imported.types.iter().map(usize::to_string).collect();
    println!("{}: {} parameters, {} types", out.display(), imported.parameters, types.join(" and "));
    imported.notes.iter().for_each(|note| println!("  {note}"));
}
