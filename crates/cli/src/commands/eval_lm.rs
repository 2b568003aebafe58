//! `mae eval-lm`: loss and perplexity of a text under a language model.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use mae_data::{AsideFile, BlockOptions, BreakMode, Segmentation, TextDataset};
use mae_eval::perplexity::{TextMeasure, log_probs};
use mae_model::lm::LmFolder;
use mae_translate::ExpertChoice;
use serde::Serialize;
use serde_json::json;

use super::generate::args::no_such_experts;
use crate::data_arg::DataArg;
use crate::device::InferenceArgs;
use crate::exit::ExitCode;
use crate::lm_text::{BlockArgs, Opened, Source, load};
use crate::model_arg::model_folder;
use crate::outputs::check_place;
use crate::progress;

const EXAMPLES: &str = "\
Examples:
  Measure perplexity by the protocol of the paper:
    mae eval-lm runs/lm/checkpoint_best --data data-bin/wiki --split test \\
        --tokens-per-sample 512 --context-window 480

  Measure two splits, as JSON:
    mae eval-lm runs/lm/checkpoint_best --data data-bin/wiki \\
        --split valid,test --json

  Write the log-probability of every token:
    mae eval-lm MODEL --data DIR --log-probs tokens.jsonl

  Measure perplexity of a plain text:
    mae eval-lm MODEL --text chapter.txt

Perplexity is 2 to the power of the bits per unit: per token of the model, per word (BPE pieces
joined), per character, per byte. Numbers of different units cannot be compared. --log-probs writes
one JSON object per line of the text, with its tokens and their natural-log probabilities.";

/// Measure loss and perplexity of a language model on binarised or plain text (fairseq's eval_lm.py).
///
/// Every token is scored once, including ends of lines. With --context-window C, a block of --tokens-per-sample N
/// tokens starts with C tokens that were scored before and scores N − C new ones: 512 and 480 is the paper's protocol.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model folder, or the folder of a run.
    #[arg(value_parser = model_folder())]
    model: PathBuf,
    #[command(flatten)]
    data: DataArg,
    /// Splits to measure, separated by commas.
    #[arg(long, alias = "gen-subset", default_value = "test", value_delimiter = ',', value_name = "NAME")]
    split: Vec<String>,
    /// Text to measure on, in place of DATA (plain, .gz or .zst; `-` is standard input). It is segmented with the
    /// model's codes, if it has any.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["DataArg", "split"])]
    text: Option<PathBuf>,
    #[command(flatten)]
    blocks: BlockArgs,
    /// Experts of a mixture that compute: mix (all, by the gates), argmax, random, or the number of one, from 0.
    #[arg(long, value_name = "WHICH", default_value_t)]
    expert: ExpertChoice,
    /// Seed of --expert random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the log-probability of every token to this file, as JSON lines.
    #[arg(long, value_name = "FILE")]
    log_probs: Option<PathBuf>,
    /// Print one JSON object per split or text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: InferenceArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    tokens_per_sample: usize,
    context_window: usize,
    sample_break_mode: BreakMode,
    expert: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(flatten)]
    measure: &'a TextMeasure,
    bits_per_token: f64,
    ppl_per_token: f64,
    bits_per_word: f64,
    ppl_per_word: f64,
    bits_per_character: f64,
    ppl_per_character: f64,
    bits_per_byte: f64,
    ppl_per_byte: f64,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    ensure!(
        args.log_probs.is_none() || args.split.len() == 1,
        "--log-probs writes one file: give one --split at a time"
    );
    check_place(args.log_probs.as_deref())?;
    let folder = load(&args.model, &args.device.open(&args.model)?)?;
    let faulty = |fault| no_such_experts(&args.model.display().to_string(), fault);
    args.expert.check(folder.model.config()).map_err(faulty)?;
    if let Some(text) = &args.text {
        measure(&args, &folder, Source::Text(text))?;
    } else {
        let data = args.data.needed(", or a text with --text FILE")?;
        for split in &args.split {
            measure(&args, &folder, Source::Split(&data, split))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &Args, folder: &LmFolder, source: Source<'_>) -> Result<()> {
    let Opened { data, name, lines } = source.open(folder, &args.model)?;
    let blocks = args.blocks.cut(&data, &name, folder.model.config().max_positions)?;
    let options = blocks.options();
    let bar = progress::bar(blocks.tokens(), &source.label());
    let mode = args.expert.mode(args.seed);
    let max_tokens = args.blocks.max_tokens()?;
    let found = log_probs(&folder.model, &blocks, max_tokens, &mode, |done| bar.set_position(done))?;
    bar.finish_and_clear();
    let measure = TextMeasure::of(&data, folder.codes.as_ref(), &found);
    let measure = match &lines {
        Some(lines) => measure.counted_in(lines),
        None => measure,
    };
    if let Some(path) = &args.log_probs {
        write_log_probs(path, &data, &found).with_context(|| format!("--log-probs {}", path.display()))?;
    }
    if args.json {
        let (bits, ppl) = (|n| measure.bits_per(n), |n| measure.perplexity_per(n));
        let (split, text) = match source {
            Source::Split(_, split) => (Some(split), None),
            Source::Text(_) => (None, Some(source.label())),
        };
        let report = Report {
            split,
            text,
            tokens_per_sample: options.tokens_per_sample,
            context_window: options.context_window,
            sample_break_mode: options.break_mode,
            expert: args.expert.to_string(),
            seed: matches!(args.expert, ExpertChoice::Random).then_some(args.seed),
            measure: &measure,
            bits_per_token: bits(measure.tokens),
            ppl_per_token: ppl(measure.tokens),
            bits_per_word: bits(measure.words),
            ppl_per_word: ppl(measure.words),
            bits_per_character: bits(measure.characters),
            ppl_per_character: ppl(measure.characters),
            bits_per_byte: bits(measure.bytes),
            ppl_per_byte: ppl(measure.bytes),
        };
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(args, &source.label(), options, &measure, folder.codes.as_ref());
    }
    Ok(())
}

fn print(
    args: &Args,
    label: &str,
    options: BlockOptions,
    measure: &TextMeasure,
    codes: Option<&Segmentation>,
) {
    let TextMeasure { lines, tokens, unknown, .. } = measure;
    let BlockOptions { tokens_per_sample, context_window, break_mode } = options;
    let blocks = match break_mode {
        BreakMode::None => format!("blocks of {tokens_per_sample}"),
        BreakMode::Complete => format!("blocks of whole lines, up to {tokens_per_sample} tokens"),
        BreakMode::Eos => "a block for each line".to_owned(),
    };
    let experts = match args.expert {
        ExpertChoice::Mix => String::new(),
        ExpertChoice::Random => format!(", random experts (seed {})", args.seed),
        one => format!(", expert {one}"),
    };
    println!(
        "{label}: {tokens} tokens ({unknown} of them <unk>, ends of {lines} lines counted), {blocks} with {context_window} \
         tokens of context{experts}"
    );
    let as_unknown = if *unknown > 0 && args.text.is_none() { ", unknown words as <unk>" } else { "" };
    let pieces = if codes.is_some() { ", pieces joined" } else { "" };
    for (unit, count, note) in [
        ("token", measure.tokens, String::new()),
        ("word", measure.words, format!(" ({} words{pieces})", measure.words)),
        ("character", measure.characters, format!(" ({} characters{as_unknown})", measure.characters)),
        ("byte", measure.bytes, format!(" ({} bytes{as_unknown})", measure.bytes)),
    ] {
        let (bits, ppl) = (measure.bits_per(count), measure.perplexity_per(count));
        println!("  loss {bits:.3} bits/{unit}, perplexity per {unit} {ppl:.2}{note}");
    }
}

/// An object per line of the text.
fn write_log_probs(path: &Path, data: &TextDataset, log_probs: &[f32]) -> Result<()> {
    let mut out = AsideFile::create(path)?;
    let mut rest = log_probs;
    for i in 0..data.lines.len() {
        let ids = data.lines.get(i);
        let (of_line, after) = rest.split_at(ids.len());
        rest = after;
        let tokens: Vec<&str> = ids.iter().map(|&id| data.vocab.symbol(id)).collect();
        serde_json::to_writer(&mut out, &json!({ "line": i, "tokens": tokens, "logprobs": of_line }))?;
        writeln!(out)?;
    }
    out.sync()?;
    Ok(out.finish()?)
}
