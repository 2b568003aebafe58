//! `mae generate`: translations of a test set or of text, and scores of given translations.

mod input;
mod output;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use mae_decode::{Hypothesis, SearchOptions, Searcher, score_references};
use mae_eval::bleu::{BleuConfig, BleuStats};
use mae_model::ExpertMode;
use mae_model::folder::{self, ModelFolder};

use crate::device::DeviceArgs;
use input::Input;
use output::{Printer, Style};
use work::{Batched, Limits};

const EXAMPLES: &str = "\
Examples:
  Translate text, one line out for one line in:
    mae generate runs/de-en/checkpoint_best --source news.de --plain > news.en
    echo 'guten morgen' | mae generate runs/de-en/checkpoint_best --source - --plain

  Translate the test set of a preprocessed folder, with the paper's WMT settings, and see its BLEU:
    mae generate runs/en-de/checkpoint_best data-bin/wmt14 --beam 4 --lenpen 0.6 > test.out
    grep ^H test.out | cut -f3- > test.hyp

  The five best translations of each line as JSON, with the log-probability of every token:
    mae generate MODEL --source news.de --nbest 5 --jsonl

  How likely is a given translation?
    mae generate MODEL --source news.de --target news.en --score-reference --jsonl

Output (without --plain or --jsonl) is fairseq's, a block per sentence, in the order of the input:
  S-0  source as the model read it (unknown words are <unk>)
  T-0  reference, if there is one
  H-0  score, translation: log2-probability / length^lenpen
  D-0  score, translation for people: the same, as no detokeniser is applied
  P-0  log2-probability of each token, the end of the sentence too
Scores in H, D and P lines have base 2 (fairseq 0.10 and later; v0.9 printed natural logarithms); in JSON they are
natural. Warnings, the speed and BLEU (fairseq's, on the words of the output as it is) go to standard error; for
sacreBLEU give the output to `mae score`.";

/// Translate text or a test set with a trained model (fairseq-generate).
///
/// Reads a preprocessed folder (DATA) or plain text (--source). Where the model folder holds BPE codes, text is
/// segmented with them, and the output is joined again. No line is ever dropped: one that is longer than the model's
/// positions is cut, an empty one gives an empty translation; both, and words the dictionary does not know, are counted
/// on standard error.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The model: a folder with model.safetensors, config.toml and dictionaries, as `mae train` writes it
    model: PathBuf,
    /// A folder that `mae preprocess` (or fairseq-preprocess) wrote, with the model's dictionaries
    #[arg(conflicts_with = "source")]
    data: Option<PathBuf>,
    /// The part of DATA to translate: train, valid, test, …
    #[arg(long, value_name = "NAME", default_value = "test")]
    gen_subset: String,
    /// Source language of DATA; found from its file names where it holds one pair only
    #[arg(long, short = 's', value_name = "LANG", requires_all = ["data", "target_lang"])]
    source_lang: Option<String>,
    /// Target language of DATA
    #[arg(long, short = 't', value_name = "LANG", requires_all = ["data", "source_lang"])]
    target_lang: Option<String>,
    /// Text to translate, one sentence per line (plain, .gz or .zst; `-` is standard input)
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
    /// Its reference translation, line by line: for T- lines, BLEU and --score-reference
    #[arg(long, value_name = "FILE", requires = "source")]
    target: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    /// The text is segmented already: do not apply the model's BPE codes
    #[arg(long, requires = "source")]
    no_bpe: bool,
    /// Join BPE pieces (`@@ `) in all output; `--remove-bpe=false` leaves them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    remove_bpe: bool,
    /// Score the references instead of translating
    #[arg(long)]
    score_reference: bool,

    /// Hypotheses kept while searching; 1 is greedy
    #[arg(long, value_name = "N", default_value_t = 5)]
    beam: usize,
    /// Translations printed per sentence, the best first
    #[arg(long, value_name = "N", default_value_t = 1)]
    nbest: usize,
    /// Exponent of the length that scores are divided by: below 1 favours short translations, above 1 long ones
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    lenpen: f32,
    /// Taken off the log-probability of `<unk>`: above 0 makes it rarer
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    unkpen: f32,
    /// The longest translation has A·(source tokens) + B tokens
    #[arg(long, value_name = "A", default_value_t = 0.0)]
    max_len_a: f32,
    /// See --max-len-a
    #[arg(long, value_name = "B", default_value_t = 200)]
    max_len_b: usize,
    /// The shortest translation has this many tokens
    #[arg(long, value_name = "N", default_value_t = 1)]
    min_len: usize,
    /// Rank by plain log-probability, not divided by the length
    #[arg(long)]
    unnormalized: bool,

    /// Source tokens in a batch, at most; also hypotheses (sentences × beam) in a batch, at most
    #[arg(long, value_name = "N", default_value_t = 4096)]
    max_tokens: u32,
    /// Sentences in a batch, at most
    #[arg(long, value_name = "N", visible_alias = "max-sentences")]
    batch_size: Option<u32>,

    /// Write here (aside, and renamed when complete) and not to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// One line out for one line in: the best translation (with --score-reference: its natural-log probability)
    #[arg(long, conflicts_with = "jsonl")]
    plain: bool,
    /// One JSON object per sentence: id, source, target and hypotheses with tokens, text, score and natural-log
    /// probabilities (with --score-reference: id, tokens, logprobs, sum)
    #[arg(long)]
    jsonl: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match generate(&args) {
        // Whoever reads our output has seen enough (`mae generate … | head`).
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result.map(|()| ExitCode::SUCCESS),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

fn generate(args: &Args) -> anyhow::Result<()> {
    let options = args.search_options();
    options.check()?;
    let limits =
        Limits::new(args.max_tokens, args.batch_size, if args.score_reference { 1 } else { args.beam })?;
    if args.plain && args.nbest > 1 {
        bail!("--plain gives one line per sentence, --nbest {} more; leave one of them out", args.nbest);
    }
    let folder = load_model(args)?;
    let input = args.read(&folder)?;
    input.report();
    let style = match (args.plain, args.jsonl) {
        (true, _) => Style::Plain,
        (_, true) => Style::Jsonl,
        _ => Style::Fairseq,
    };
    let mut printer = Printer::open(args.output.as_deref(), style, args.remove_bpe, &input)?;
    if args.score_reference {
        score(&folder, &input, &limits, &mut printer)?;
        return printer.finish();
    }
    let bleu = translate(&folder, &input, &options, &limits, &mut printer)?;
    printer.finish()?;
    if let Some(bleu) = bleu {
        eprintln!("Generate {} with beam={}: {}", input.name, args.beam, bleu.score().fairseq_line());
    }
    Ok(())
}

fn load_model(args: &Args) -> anyhow::Result<ModelFolder> {
    let path = &args.model;
    if !path.join(folder::CONFIG).is_file() {
        bail!(
            "{} is not a model folder: it holds no {}. `mae train` writes such folders \
             (SAVE_DIR/checkpoint_best, SAVE_DIR/checkpoint_last)",
            path.display(),
            folder::CONFIG
        );
    }
    ModelFolder::load(path, &args.device.open()?)
        .with_context(|| format!("cannot load the model {}", path.display()))
}

/// Translates everything; the BLEU counts, if there are references.
fn translate(
    folder: &ModelFolder,
    input: &Input,
    options: &SearchOptions,
    limits: &Limits,
    printer: &mut Printer<'_>,
) -> anyhow::Result<Option<BleuStats>> {
    let mut bleu = input.references.as_ref().map(|_| BleuStats::new(BleuConfig::fairseq()));
    let mut tokens = 0;
    let begin = Instant::now();
    let mut searcher = Searcher::new(&folder.model, options, &ExpertMode::Mix);
    let find = |batch: &mae_data::PackedBatch| Ok(searcher.search(batch)?);
    work::in_order(input, limits, "Translating", Batched::SourcesWithWords, find, |i, found| {
        let found = match found {
            None => vec![Hypothesis { tokens: Vec::new(), score: 0.0, positional: Vec::new() }],
            Some(found) if found.is_empty() => bail!(
                "the model gives no numbers for sentence {i}; its training has probably diverged: \
                 use an earlier checkpoint"
            ),
            Some(found) => found,
        };
        tokens += found[0].tokens.len();
        if let (Some(bleu), Some(references)) = (&mut bleu, &input.references) {
            bleu.add(&printer.text(&found[0].tokens), &references[i..=i])?;
        }
        printer.translation(i, &found)
    })?;
    work::report_speed("Translated", input.len(), tokens, begin.elapsed());
    Ok(bleu)
}

fn score(
    folder: &ModelFolder,
    input: &Input,
    limits: &Limits,
    printer: &mut Printer<'_>,
) -> anyhow::Result<()> {
    if input.references.is_none() {
        bail!("--score-reference needs references; give them with --target FILE");
    }
    let mut tokens = 0;
    let begin = Instant::now();
    let find = |batch: &mae_data::PackedBatch| Ok(score_references(&folder.model, batch, &ExpertMode::Mix)?);
    work::in_order(input, limits, "Scoring", Batched::Pairs, find, |i, log_probs| {
        let log_probs = log_probs.unwrap_or_default();
        tokens += log_probs.len();
        printer.score(i, &log_probs)
    })?;
    work::report_speed("Scored", input.len(), tokens, begin.elapsed());
    Ok(())
}

impl Args {
    fn search_options(&self) -> SearchOptions {
        SearchOptions {
            beam: self.beam,
            nbest: self.nbest,
            lenpen: self.lenpen,
            unkpen: self.unkpen,
            max_len_a: self.max_len_a,
            max_len_b: self.max_len_b,
            min_len: self.min_len,
            normalise: !self.unnormalized,
        }
    }

    fn read(&self, folder: &ModelFolder) -> anyhow::Result<Input> {
        match (&self.data, &self.source) {
            (Some(data), _) => {
                let languages = self.source_lang.as_deref().zip(self.target_lang.as_deref());
                Input::from_folder(data, &self.gen_subset, languages, folder, self.remove_bpe)
            }
            (None, Some(source)) => {
                let segment = !self.no_bpe;
                Input::from_text(source, self.target.as_deref(), folder, segment, self.remove_bpe)
            }
            (None, None) => bail!(
                "nothing to translate: give a preprocessed folder after the model, or text with --source FILE \
                 (`--source -` reads standard input)"
            ),
        }
    }
}
