//! `mae generate`: translations of a test set or of text, and scores of given translations.

pub(super) mod args;
pub mod input;
pub(super) mod notes;
pub(super) mod output;
pub(super) mod translate;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::bail;
use mae_translate::{Models, Pipeline};

use args::{ModelArgs, OutputArgs, SearchArgs, TextArgs};
use input::{Input, TextOptions};
use notes::{Notes, tell_rules};
use output::{Printer, Style};
use translate::{report_speed, score, translate};

use crate::data_arg::data_bin;
use crate::exit::ExitCode;
use crate::outputs::{check_apart, unless_nobody_reads};
use crate::progress;

const EXAMPLES: &str = "\
Examples:
  Translate a text, one line out for one line in (`mae translate` is `mae generate --plain`):
    mae translate runs/de-en/checkpoint_best news.de > news.en
    echo 'guten morgen' | mae translate runs/de-en/checkpoint_best -

  Translate the test set of a preprocessed folder with the paper's WMT settings, and see its BLEU:
    mae generate runs/en-de/checkpoint_best data-bin/wmt14 --beam 4 \\
        --lenpen 0.6 > test.out
    grep ^H test.out | cut -f3- > test.hyp

  Print the five best translations of each line as JSON, with the log-probability of every token:
    mae generate MODEL --source news.de --nbest 5 --jsonl

  Find five different translations, by diverse beam groups or by sampling:
    mae generate MODEL --source news.de --nbest 5 --diverse-beam-groups 5
    mae generate MODEL --source news.de --nbest 5 --sampling \\
        --sampling-topp 0.9 --temperature 0.8

  Translate with an ensemble of three models:
    mae generate run1/average:run2/average:run3/average --source news.de

  Use only the gates' favourite expert for each sentence, and print the gates:
    mae generate MODEL --source news.de --expert argmax --jsonl --gates

  Force the first words of each translation:
    mae generate MODEL --source news.de --prefix-file begins.en --plain

  Score given translations:
    mae generate MODEL --source news.de --target news.en --score-reference \\
        --jsonl

Without --plain or --jsonl the output has fairseq's format, a block per sentence, in input order:
  S-0  source as the model read it (unknown words are <unk>)
  T-0  reference, if there is one
  H-0  score and translation; the score is log2-probability / length^lenpen
  D-0  score and detokenised translation: the same text if the model folder has no rules of Moses
  P-0  log2-probability of each token, including the end of the sentence
Scores in H, D and P lines have base 2, as in fairseq 0.10 and later (v0.9 printed natural
logarithms); in JSON they are natural logarithms. Warnings, speed and BLEU (fairseq's, on the words
of the output as they are) go to standard error; for sacreBLEU, pass the output to `mae score`.";

/// Translate text or a test set with a trained model (fairseq-generate).
///
/// Reads a preprocessed folder (DATA) or plain text (--source). Text goes through the rules of the training text
/// (tokeniser, lower case), if the model folder has them, and is segmented with its BPE codes; the output is joined and
/// detokenised again. No line is dropped: a line longer than the model's positions is cut, and an empty line gives an
/// empty translation. Cut lines and unknown words are counted on standard error.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    models: ModelArgs,
    /// Folder written by `mae prepare`, `mae preprocess` or fairseq-preprocess with the model's dictionaries; or a text, as
    /// with --source
    #[arg(conflicts_with = "source")]
    data: Option<PathBuf>,
    /// The same as DATA
    #[arg(long = "data", value_name = "DIR", conflicts_with_all = ["data", "source"])]
    data_folder: Option<PathBuf>,
    /// Split of DATA to translate: train, valid, test, …
    #[arg(long, value_name = "NAME", default_value = "test")]
    gen_subset: String,
    /// Source language of DATA [default: from the file names, if there is one pair only]
    #[arg(long, short = 's', value_name = "LANG", requires = "target_lang")]
    source_lang: Option<String>,
    /// Target language of DATA
    #[arg(long, short = 't', value_name = "LANG", requires = "source_lang")]
    target_lang: Option<String>,
    /// Text to translate, one sentence per line (plain, .gz or .zst; `-` is standard input)
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
    /// Reference translation of --source, line by line: for T- lines, BLEU, --prefix-size and --score-reference
    #[arg(long, value_name = "FILE", conflicts_with = "gen_subset")]
    target: Option<PathBuf>,
    #[command(flatten)]
    text: TextArgs,
    /// Force the first N tokens of each reference at the start of its translation
    #[arg(long, value_name = "N", conflicts_with = "prefix_file")]
    prefix_size: Option<usize>,
    /// Force the words of each line of this file at the start of its translation; lines can be empty
    #[arg(long, value_name = "FILE")]
    prefix_file: Option<PathBuf>,
    /// Score the references instead of translating
    #[arg(long, conflicts_with_all = ["gates", "nbest", "prefix_size", "prefix_file", "sampling"])]
    score_reference: bool,
    #[command(flatten)]
    search: SearchArgs,
    #[command(flatten)]
    output: OutputArgs,
    /// Print no translations, only BLEU and speed (on standard error)
    #[arg(long, conflicts_with_all = ["plain", "jsonl", "output"])]
    quiet: bool,
}

/// Runs the command.
pub fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.data = args.data.or(args.data_folder.take());
    if args.data.as_ref().is_some_and(|data| data.is_file() || data.as_os_str() == "-") {
        args.source = args.data.take();
    }
    if let Some(data) = args.data.as_ref().filter(|data| !data.exists()) {
        bail!("there is no {}, neither a text to translate nor a preprocessed folder", data.display());
    }
    unless_nobody_reads(generate(&args))
}

fn generate(args: &Args) -> anyhow::Result<()> {
    let texts = [&args.source, &args.target, &args.prefix_file].into_iter().flatten();
    let inputs: Vec<&Path> = texts.map(PathBuf::as_path).collect();
    check_apart(&args.output.output.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &inputs)?;
    let mut search = args.search.options(&args.models)?;
    let limits = args.search.limits()?;
    let models = args.models.load()?;
    search.shortlist = args.search.read_shortlist(&models)?;
    let style = if args.quiet { Style::Nothing } else { args.output.style(&args.search, &models)? };
    let options = args.output.group(search, args.models.mode(&models)?);
    let mut notes = Notes::new(models.positions());
    let input = args.read(&models, &mut notes)?;
    notes.report();
    let mut printer = Printer::open(args.output.output.as_deref(), style, args.text_options())?;
    let mut pipeline = Pipeline::new(&models.all(), limits);
    let bar = |what| progress::bar(input.len() as u64, what);
    if args.score_reference {
        score(&pipeline, &options, &input, &mut printer, &bar("Scoring"))?;
        return printer.finish();
    }
    let begin = Instant::now();
    let done = translate(&mut pipeline, &options, &input, &mut printer, &bar("Translating"))?;
    report_speed("Translated", input.len(), done.tokens, begin.elapsed());
    printer.finish()?;
    if let Some(bleu) = done.bleu {
        let beam = options.search.beam;
        eprintln!("Generate {} with beam={beam}: {}", input.name, bleu.score().fairseq_line());
    }
    Ok(())
}

impl Args {
    fn text_options(&self) -> TextOptions {
        TextOptions { form: self.text.form(), remove_bpe: self.output.remove_bpe }
    }

    fn read<'m>(&self, models: &'m Models, notes: &mut Notes) -> anyhow::Result<Input<'m>> {
        let text = self.text_options();
        let form = text.form;
        if self.source.is_some() || self.prefix_file.is_some() {
            tell_rules(models, form);
        }
        if self.source == Some("-".into()) && self.source == self.prefix_file {
            bail!("--source and --prefix-file cannot both be standard input; put one of them in a file");
        }
        let mut input = match (&self.data, &self.source) {
            (Some(_), _) if self.target.is_some() => {
                bail!("--target is the reference of a text; a preprocessed folder has its own")
            }
            (Some(data), _) => {
                let languages = self.source_lang.as_deref().zip(self.target_lang.as_deref());
                Input::from_folder(&data_bin(data), &self.gen_subset, languages, models, text, notes)?
            }
            (None, Some(source)) => Input::from_text(source, self.target.as_deref(), models, text, notes)?,
            (None, None) => bail!(
                "nothing to translate: give a text or a preprocessed folder after the model, or text with --source FILE (`-` is \
                 standard input)"
            ),
        };
        if let Some(size) = self.prefix_size {
            input.force_references(size)?;
        }
        if let Some(path) = &self.prefix_file {
            input.force_lines_of(path, form, notes)?;
        }
        Ok(input)
    }
}
