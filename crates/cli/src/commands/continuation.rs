//! `mae continue`: texts that a language model continues.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use mae_data::{EOS, Segmentation};
use mae_model::ExpertMode;
use mae_model::lm::LmFolder;
use mae_translate::{
    Continuation, ContinueOptions, Prompt, PromptRoom, Reading, Sampling, continue_texts, lm_text,
};
use serde_json::json;

use super::generate::input::all_lines;
use crate::device::InferenceArgs;
use crate::exit::ExitCode;
use crate::lm_text::load;
use crate::model_arg::model_folder;
use crate::outputs::unless_nobody_reads;

const EXAMPLES: &str = "\
Examples:
  Continue a text with the most likely tokens:
    mae continue runs/lm/checkpoint_best --prompt 'The history of the'

  Draw three continuations at random:
    mae continue MODEL --prompt 'The history of the' --nbest 3 \\
        --sampling --sampling-topp 0.9 --temperature 0.8

  Continue every line of a file and print JSON:
    mae continue MODEL --source prompts.txt --json";

/// Continue a text with a language model.
///
/// Prints each prompt with its continuation, one per line and in order. Prompts are segmented with the model's BPE
/// codes, if it has any, and joined again. A continuation ends where the model ends the line, or after --max-len
/// tokens.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model folder, or the folder of a run.
    #[arg(value_parser = model_folder())]
    model: PathBuf,
    /// Text to continue; can be repeated, and can be empty.
    #[arg(long, value_name = "TEXT", conflicts_with = "source", required_unless_present = "source")]
    prompt: Vec<String>,
    /// Texts to continue, one per line (plain, .gz or .zst; `-` is standard input).
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
    /// Largest number of new tokens. Long prompts are cut at the start to make room for them [default: 50, or the rest
    /// of the model's positions].
    #[arg(long, value_name = "N")]
    max_len: Option<usize>,
    /// Sample tokens instead of taking the most likely ones.
    #[arg(long)]
    sampling: bool,
    /// Sample from the K most likely tokens.
    #[arg(long, value_name = "K", requires = "sampling")]
    sampling_topk: Option<usize>,
    /// Sample from the smallest set of most likely tokens whose total probability is at least P.
    #[arg(long, value_name = "P", requires = "sampling")]
    sampling_topp: Option<f32>,
    /// Temperature that divides logits: above 1 flattens distributions, below 1 sharpens them.
    #[arg(long, value_name = "T", default_value_t = 1.0, requires = "sampling")]
    temperature: f32,
    /// Number of continuations per prompt.
    #[arg(long, value_name = "N", default_value_t = 1)]
    nbest: usize,
    /// Seed of --sampling; draws depend only on the seed and the numbers of the prompt and the continuation.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Never generate `<unk>`.
    #[arg(long)]
    no_unk: bool,
    /// Print one JSON object per continuation: prompt, text, tokens and their natural-log probabilities.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: InferenceArgs,
}

/// New tokens where no number is asked for.
const MAX_LEN: usize = 50;

/// Texts that are continued together.
const TOGETHER: usize = 32;

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    unless_nobody_reads(go_on(&args))
}

fn go_on(args: &Args) -> Result<()> {
    let options = args.options()?;
    let folder = load(&args.model, &args.device.open(&args.model)?)?;
    let positions = folder.model.config().max_positions;
    ensure!(
        args.max_len.is_none_or(|max_len| max_len < positions),
        "--max-len {}: the model has {positions} positions, and a prompt needs at least one of them",
        options.max_len
    );
    let lines = args.lines()?;
    let readings = read(&folder, &lines, args.max_len);
    let several = |reading: &Reading| {
        (0..args.nbest).map(|rank| Prompt { rank, ..reading.prompt.clone() }).collect::<Vec<_>>()
    };
    let all: Vec<Prompt> = readings.iter().flat_map(several).collect();
    let mut out = std::io::stdout().lock();
    for prompts in all.chunks(TOGETHER) {
        let found = continue_texts(&folder.model, prompts, &options, &ExpertMode::Mix)?;
        for (prompt, continuation) in prompts.iter().zip(&found) {
            let place = prompt.place as usize;
            args.print(&mut out, &folder, (&lines[place], &readings[place]), continuation)?;
        }
        out.flush()?;
    }
    Ok(())
}

/// Reads prompts as tokens; what was cut, shortened, unknown or left out is printed on standard error.
fn read(folder: &LmFolder, lines: &[String], max_len: Option<usize>) -> Vec<Reading> {
    let positions = folder.model.config().max_positions;
    let room = max_len.map_or(PromptRoom::Rest(MAX_LEN), PromptRoom::Fixed);
    let segmenter = folder.codes.as_ref().map(Segmentation::segmenters).map(|[segmenter, _]| segmenter);
    let readings = room.read(lines, (&folder.dictionary, segmenter.as_deref()), positions);
    let longest = room.longest(positions);
    let count = |what: fn(&Reading) -> usize| readings.iter().map(what).sum::<usize>();
    let is_short = |reading: &&Reading| reading.prompt.tokens.len() + MAX_LEN > positions;
    let short = if max_len.is_none() { readings.iter().filter(is_short).count() } else { 0 };
    let cut_to = format!(
        "prompts are too long for the model's {positions} positions: of these, the last {longest} tokens are read, so \
         that there is room for {} new ones (--max-len)",
        positions - longest
    );
    let shortened = format!(
        "prompts leave room for fewer than {MAX_LEN} new tokens in the model's {positions} positions"
    );
    for (count, what) in [
        (count(|reading| usize::from(!reading.before.is_empty())), cut_to.as_str()),
        (short, &shortened),
        (
            count(|reading| reading.unknown),
            "tokens of the prompts are not in the dictionary and are read as <unk>",
        ),
        (count(|reading| reading.ends), "tokens </s> of the prompts are left out: a prompt is one line"),
    ] {
        if count > 0 {
            eprintln!("mae: {count} {what}");
        }
    }
    readings
}

impl Args {
    fn options(&self) -> Result<ContinueOptions> {
        let max_len = self.max_len.unwrap_or(MAX_LEN);
        ensure!(max_len > 0 && self.nbest > 0, "--max-len and --nbest must be above 0");
        ensure!(
            self.temperature > 0.0 && self.temperature.is_finite(),
            "--temperature {}: must be above 0",
            self.temperature
        );
        ensure!(self.sampling_topk != Some(0), "--sampling-topk 0: at least one token must be possible");
        ensure!(
            self.sampling_topp.is_none_or(|p| p > 0.0 && p <= 1.0),
            "--sampling-topp must be above 0 and at most 1"
        );
        ensure!(
            self.nbest == 1 || self.sampling,
            "--nbest {}: there is one likeliest continuation; --sampling draws several",
            self.nbest
        );
        let sampling = Sampling { topk: self.sampling_topk, topp: self.sampling_topp };
        Ok(ContinueOptions {
            max_len,
            sampling: self.sampling.then_some(sampling),
            temperature: self.temperature,
            seed: self.seed,
            unknown: !self.no_unk,
        })
    }

    fn lines(&self) -> Result<Vec<String>> {
        let Some(path) = &self.source else { return Ok(self.prompt.clone()) };
        all_lines(path).with_context(|| format!("--source {}", path.display()))
    }

    fn print(
        &self,
        out: &mut impl Write,
        folder: &LmFolder,
        (line, reading): (&str, &Reading),
        found: &Continuation,
    ) -> Result<()> {
        let join = |tokens: &[u32]| lm_text(&folder.dictionary, folder.codes.as_ref(), tokens);
        let whole = join(&[&reading.before[..], &reading.prompt.tokens, &found.tokens].concat());
        if self.json {
            let tokens: Vec<&str> =
                found.tokens.iter().map(|&token| folder.dictionary.symbol(token)).collect();
            let object = json!({
                "prompt": line, "text": whole, "tokens": tokens, "logprobs": found.log_probs,
                "ended": found.tokens.last() == Some(&EOS)
            });
            serde_json::to_writer(&mut *out, &object)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{whole}")?;
        }
        Ok(())
    }
}
