//! `mae preprocess`: text files to a binarised folder, with fairseq's flags.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use mae_data::bpe::{Dropout, LearnOptions};
use mae_data::preprocess::{BpeSource, LinePolicy, Policies, PreprocessReport, Progress};
use mae_data::{BadUtf8, PreprocessOptions, preprocess};

use super::prepare::how_to_train;
use crate::exit::ExitCode;
use crate::progress::Stages;

const EXAMPLES: &str = "\
Examples:
  Learn 10,000 joint merges and binarise tokenised text (train.de, train.en, …; one sentence per
  line, line n of one file translating line n of the other) for German to English:
    mae preprocess -s de -t en --trainpref data/train --validpref data/valid \\
        --testpref data/test \\
        --bpe 10000 --destdir data-bin/iwslt14.de-en

  Binarise another test set with the dictionaries and merges of that run:
    mae preprocess -s de -t en --testpref data/tst2015 \\
        --destdir data-bin/tst2015 \\
        --srcdict data-bin/iwslt14.de-en/dict.de.txt \\
        --tgtdict data-bin/iwslt14.de-en/dict.en.txt \\
        --bpe-codes data-bin/iwslt14.de-en/bpe.codes

  Segment untokenised text with a model of SentencePiece:
    mae preprocess -s de -t en --trainpref data/train --validpref data/valid \\
        --spm joint.model \\
        --joined-dictionary --destdir data-bin/spm

  Binarise one text for a language model (the options name whole files; words stay whole unless
  --bpe N is given):
    mae preprocess --only-source --trainpref train.txt --validpref valid.txt \\
        --testpref test.txt \\
        --destdir data-bin/wiki

The folder has fairseq's format: either program reads what the other has written.";

/// Turn text into dictionaries and token ids (fairseq-preprocess), optionally with BPE.
///
/// Reads PREFIX.LANG, also compressed (PREFIX.LANG.gz, PREFIX.LANG.zst), and writes dict.LANG.txt,
/// SPLIT.SRC-TGT.LANG.{bin,idx} and, with BPE, its codes, tokenizer.json or SentencePiece model. Files appear when all of them are complete.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Source language: the extension of its files, such as `de`.
    #[arg(short, long, value_name = "SRC", required_unless_present = "only_source")]
    source_lang: Option<String>,
    /// Target language: the extension of its files, such as `en`.
    #[arg(
        short,
        long,
        value_name = "TGT",
        required_unless_present = "only_source",
        conflicts_with = "only_source"
    )]
    target_lang: Option<String>,
    /// Process a single text, for language models: reads PREFIX (with -s PREFIX.SRC), writes dict.txt and
    /// SPLIT.{bin,idx}.
    #[arg(long)]
    only_source: bool,
    /// Training text: PREFIX.SRC and PREFIX.TGT. Dictionaries and merges are built from it.
    #[arg(long, value_name = "PREFIX")]
    trainpref: Option<String>,
    /// Validation texts, separated by commas: they become `valid`, `valid1`, ….
    #[arg(long, value_name = "PREFIX,…")]
    validpref: Option<String>,
    /// Test texts, separated by commas: they become `test`, `test1`, ….
    #[arg(long, value_name = "PREFIX,…")]
    testpref: Option<String>,
    /// Folder to write to.
    #[arg(long, value_name = "DIR", default_value = "data-bin")]
    destdir: PathBuf,

    /// Build one dictionary for both languages, limited by --nwordssrc and --thresholdsrc; needed to share all
    /// embeddings.
    #[arg(long, help_heading = "Dictionaries")]
    joined_dictionary: bool,
    /// Use this source dictionary in place of a new one.
    #[arg(long, value_name = "FILE", help_heading = "Dictionaries")]
    srcdict: Option<PathBuf>,
    /// Use this target dictionary in place of a new one.
    #[arg(long, value_name = "FILE", help_heading = "Dictionaries")]
    tgtdict: Option<PathBuf>,
    /// Keep only the most frequent source types, N including the four special ones [default: all].
    #[arg(long, value_name = "N", help_heading = "Dictionaries")]
    nwordssrc: Option<usize>,
    /// Keep only the most frequent target types, N including the four special ones [default: all].
    #[arg(long, value_name = "N", help_heading = "Dictionaries")]
    nwordstgt: Option<usize>,
    /// Treat source types with fewer than N occurrences as unknown.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Dictionaries")]
    thresholdsrc: u64,
    /// Treat target types with fewer than N occurrences as unknown.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Dictionaries")]
    thresholdtgt: u64,
    /// Pad dictionaries to a multiple of N types.
    #[arg(long, value_name = "N", default_value_t = 8, help_heading = "Dictionaries")]
    padding_factor: usize,

    /// Learn N byte-pair merges on both sides of the training text together and segment all texts with them.
    #[arg(long, value_name = "N", help_heading = "Segmentation")]
    bpe: Option<usize>,
    /// Segment all texts with the merges in this file (subword-nmt's codes, version 0.1 or 0.2).
    #[arg(long, value_name = "FILE", conflicts_with = "bpe", help_heading = "Segmentation")]
    bpe_codes: Option<PathBuf>,
    /// With --bpe: learn N merges for each side separately.
    #[arg(long, requires = "bpe", help_heading = "Segmentation")]
    separate_bpe: bool,
    /// Merges of the target side; --bpe-codes are then those of the source side.
    #[arg(long, value_name = "FILE", requires = "bpe_codes", help_heading = "Segmentation")]
    target_bpe_codes: Option<PathBuf>,
    /// Segment all texts with this tokenizer.json of Hugging Face's `tokenizers`; dictionaries hold the pieces of the
    /// training text.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bpe", "bpe_codes"], help_heading = "Segmentation")]
    tokenizer: Option<PathBuf>,
    /// Segment all texts with this model of SentencePiece (unigram, bpe or char).
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["bpe", "bpe_codes", "tokenizer"],
        help_heading = "Segmentation"
    )]
    spm: Option<PathBuf>,
    /// SentencePiece model of the target side; --spm is then that of the source side.
    #[arg(long, value_name = "FILE", requires = "spm", help_heading = "Segmentation")]
    target_spm: Option<PathBuf>,
    /// Probability of skipping each merge at each step (BPE dropout), in the training text only.
    #[arg(long, value_name = "P", default_value_t = 0.0, help_heading = "Segmentation")]
    bpe_dropout: f64,
    /// Seed of --bpe-dropout.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Segmentation")]
    seed: u64,
    /// Stop learning when no pair of symbols occurs N times.
    #[arg(long, value_name = "N", default_value_t = 2, requires = "bpe", help_heading = "Segmentation")]
    bpe_min_frequency: u64,

    /// Treatment of lines that are not UTF-8.
    #[arg(long, value_name = "DO", value_enum, default_value_t = OnBadUtf8::Error, help_heading = "Unusual lines")]
    bad_utf8: OnBadUtf8,
    /// Treatment of training pairs with an empty side [default: skip; keep with --only-source].
    #[arg(long, value_name = "DO", value_enum, help_heading = "Unusual lines")]
    empty_train: Option<OnLine>,
    /// Treatment of validation and test pairs with an empty side.
    #[arg(long, value_name = "DO", value_enum, default_value_t = OnLine::Keep, help_heading = "Unusual lines")]
    empty_eval: OnLine,
    /// Length from which a line is too long: more than N tokens, after BPE and without the end mark.
    #[arg(long, value_name = "N", default_value_t = 1023, help_heading = "Unusual lines")]
    max_line_tokens: usize,
    /// Treatment of training pairs with a side that is too long.
    #[arg(long, value_name = "DO", value_enum, default_value_t = OnLine::Keep, help_heading = "Unusual lines")]
    long_train: OnLine,
    /// Treatment of validation and test pairs with a side that is too long.
    #[arg(long, value_name = "DO", value_enum, default_value_t = OnLine::Keep, help_heading = "Unusual lines")]
    long_eval: OnLine,

    /// fairseq's name for --threads.
    #[arg(long, value_name = "N", hide = true)]
    workers: Option<usize>,
    /// Print the report as one JSON object.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Print no progress bars and no report (--json still prints its object).
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnBadUtf8 {
    /// Stop with an error that names file, line and byte.
    Error,
    /// Replace the bad bytes with U+FFFD and report the line.
    Replace,
}

#[derive(Clone, Copy, ValueEnum)]
enum OnLine {
    /// Keep the pair.
    Keep,
    /// Skip the pair and count it.
    Skip,
    /// Stop with an error that names file and line.
    Error,
}

impl From<OnLine> for LinePolicy {
    fn from(on: OnLine) -> Self {
        match on {
            OnLine::Keep => Self::Keep,
            OnLine::Skip => Self::Skip,
            OnLine::Error => Self::Error,
        }
    }
}

impl Args {
    /// Threads that --workers asks for. fairseq's default, 1, and its 0 say nothing about this machine.
    pub fn workers(&self) -> Option<usize> {
        self.workers.filter(|&workers| workers > 1)
    }

    fn segmentation(&self) -> BpeSource {
        if let Some(path) = &self.tokenizer {
            return BpeSource::Tokenizer(path.clone());
        }
        match (&self.spm, &self.target_spm) {
            (Some(src), Some(tgt)) => return BpeSource::SentencePieces(src.clone(), tgt.clone()),
            (Some(path), None) => return BpeSource::SentencePiece(path.clone()),
            (None, _) => {}
        }
        match (self.bpe, &self.bpe_codes, &self.target_bpe_codes) {
            (Some(merges), ..) => {
                let options = LearnOptions { merges, min_frequency: self.bpe_min_frequency };
                if self.separate_bpe {
                    BpeSource::LearnSeparately(options)
                } else {
                    BpeSource::Learn(options)
                }
            }
            (None, Some(src), Some(tgt)) => BpeSource::SeparateCodes(src.clone(), tgt.clone()),
            (None, Some(path), None) => BpeSource::Codes(path.clone()),
            (None, None, _) => BpeSource::None,
        }
    }

    fn options(&self) -> mae_data::Result<PreprocessOptions> {
        let dropout = Dropout::new(self.bpe_dropout, self.seed)?;
        let bad_utf8 = match self.bad_utf8 {
            OnBadUtf8::Error => BadUtf8::Error,
            OnBadUtf8::Replace => BadUtf8::Replace,
        };
        let lang = |lang: &Option<String>| lang.clone().unwrap_or_default();
        let base = if self.only_source {
            let source_lang = lang(&self.source_lang);
            PreprocessOptions { source_lang, ..PreprocessOptions::only_source(&self.destdir) }
        } else {
            PreprocessOptions::new(&lang(&self.source_lang), &lang(&self.target_lang), &self.destdir)
        };
        Ok(PreprocessOptions {
            trainpref: self.trainpref.clone(),
            validpref: self.validpref.clone(),
            testpref: self.testpref.clone(),
            joined_dictionary: self.joined_dictionary,
            srcdict: self.srcdict.clone(),
            tgtdict: self.tgtdict.clone(),
            nwordssrc: self.nwordssrc,
            nwordstgt: self.nwordstgt,
            thresholdsrc: self.thresholdsrc,
            thresholdtgt: self.thresholdtgt,
            padding_factor: self.padding_factor,
            bpe: self.segmentation(),
            dropout: (self.bpe_dropout > 0.0).then_some(dropout),
            bad_utf8,
            empty: Policies {
                train: self.empty_train.map_or(base.empty.train, Into::into),
                eval: self.empty_eval.into(),
            },
            max_line_tokens: self.max_line_tokens,
            too_long: Policies { train: self.long_train.into(), eval: self.long_eval.into() },
            ..base
        })
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let options = args.options()?;
    let mut stages = Stages::new(args.quiet);
    let done = preprocess(&options, |progress| show(&mut stages, progress));
    stages.finish();
    let report = done?;
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else if !args.quiet {
        print(&mut out, &args, &report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, args: &Args, report: &PreprocessReport) -> std::io::Result<()> {
    writeln!(out, "{report}")?;
    let destdir = args.destdir.display();
    match args.trainpref {
        Some(_) if args.only_source => {
            // A recipe whose bands fit the dictionary.
            let recipe = match report.src_vocab {
                60_001.. => "--recipe wiki103-mae7` (the paper's; wikitext2-mae7 is small)".to_owned(),
                12_001.. => "--recipe wikitext2-mae7`".to_owned(),
                types => {
                    format!("--recipe wikitext2-mae7 --adaptive-softmax-cutoff {},{}`", types / 6, types / 2)
                }
            };
            writeln!(out, "written to {destdir}; train on it with `mae train {destdir} {recipe}")
        }
        Some(_) => {
            let how = how_to_train(&args.destdir, args.joined_dictionary);
            writeln!(out, "written to {destdir}; {how}")
        }
        None => writeln!(out, "written to {destdir}"),
    }
}

/// Shows the stage that preprocessing is at.
pub fn show(stages: &mut Stages, progress: Progress<'_>) {
    match progress {
        Progress::Counting { path } => stages.lines(&format!("counting words of {}", path.display()), 0),
        Progress::Learning { done, total } => stages.steps("learning merges", done as u64, total as u64),
        Progress::Encoding { split, lines } => stages.lines(&format!("encoding {split}"), lines),
    }
}
