//! `mae continue`: a language model goes on writing.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use mae_data::{EOS, UNK};
use mae_decode::{Continuation, ContinueOptions, Prompt, Sampling, continue_texts};
use mae_eval::translate::text;
use mae_model::ExpertMode;
use mae_model::lm::LmFolder;
use serde_json::json;

use super::eval_lm::load;
use super::generate::input::open;
use crate::device::DeviceArgs;
use crate::outputs::unless_nobody_reads;

/// Let a language model continue a text.
///
/// Prints each prompt with its continuation, one per line and in order. Prompts are cut with the model's BPE codes, if it
/// has any, and joined again. A continuation ends where the model ends the line, or after --max-len tokens.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mae continue runs/lm/checkpoint_best --prompt 'The history of the'
  mae continue MODEL --prompt 'The history of the' --sampling --sampling-topp 0.9 --temperature 0.8 --nbest 3
  mae continue MODEL --source prompts.txt --json")]
pub struct Args {
    /// Model folder.
    model: PathBuf,
    /// A text to continue; may be repeated, and may be empty.
    #[arg(long, value_name = "TEXT", conflicts_with = "source", required_unless_present = "source")]
    prompt: Vec<String>,
    /// Texts to continue, one per line (plain, .gz or .zst; `-` is standard input).
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,
    /// New tokens at most.
    #[arg(long, value_name = "N", default_value_t = 50)]
    max_len: usize,
    /// Draw tokens at random instead of taking the likeliest.
    #[arg(long)]
    sampling: bool,
    /// Draw from the K likeliest tokens only.
    #[arg(long, value_name = "K", requires = "sampling")]
    sampling_topk: Option<usize>,
    /// Draw from the likeliest tokens only, as many as it takes for a probability of P together.
    #[arg(long, value_name = "P", requires = "sampling")]
    sampling_topp: Option<f32>,
    /// Divide logits by T: above 1 flatter, below 1 sharper distributions.
    #[arg(long, value_name = "T", default_value_t = 1.0, requires = "sampling")]
    temperature: f32,
    /// Continuations per prompt.
    #[arg(long, value_name = "N", default_value_t = 1)]
    nbest: usize,
    /// Seed of --sampling; what is drawn depends on it, the prompt's number and the continuation's number only.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Never write `<unk>`.
    #[arg(long)]
    no_unk: bool,
    /// Print a JSON object per continuation: prompt, text, tokens and their natural-log probabilities.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Texts that are continued together.
const TOGETHER: usize = 32;

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    unless_nobody_reads(go_on(&args))
}

fn go_on(args: &Args) -> Result<()> {
    let options = args.options()?;
    let folder = load(&args.model, &args.device)?;
    let positions = folder.model.config().max_positions;
    ensure!(
        args.max_len < positions,
        "--max-len {}: the model has {positions} positions, and a prompt needs at least one of them",
        args.max_len
    );
    let lines = args.lines()?;
    // The end of the line before the prompt is read, too.
    let prompts = read(&folder, &lines, positions - args.max_len);
    let several =
        |prompt: &Prompt| (0..args.nbest).map(|rank| Prompt { rank, ..prompt.clone() }).collect::<Vec<_>>();
    let all: Vec<Prompt> = prompts.iter().flat_map(several).collect();
    let mut out = std::io::stdout().lock();
    for prompts in all.chunks(TOGETHER) {
        let found = continue_texts(&folder.model, prompts, &options, &ExpertMode::Mix)?;
        for (prompt, continuation) in prompts.iter().zip(&found) {
            args.print(&mut out, &folder, (&lines[prompt.place as usize], prompt), continuation)?;
        }
        out.flush()?;
    }
    Ok(())
}

/// Prompts as tokens, the last ones where there are more than `room`; what was cut or unknown is told.
fn read(folder: &LmFolder, lines: &[String], room: usize) -> Vec<Prompt> {
    let segmenter = folder.codes.as_ref().map(|codes| codes.segmenters()[0].clone());
    let (mut cut, mut unknown) = (0, 0);
    let prompt = |(place, line): (usize, &String)| {
        let pieces = segmenter.as_ref().map_or(line.clone(), |segmenter| segmenter.segment_line(line));
        let mut tokens = folder.dictionary.encode_line(&pieces);
        tokens.retain(|&token| token != EOS);
        unknown += tokens.iter().filter(|&&token| token == UNK).count();
        let surplus = tokens.len().saturating_sub(room);
        cut += usize::from(surplus > 0);
        tokens.drain(..surplus);
        Prompt { tokens, place: place as u32, rank: 0 }
    };
    let prompts = lines.iter().enumerate().map(prompt).collect();
    if cut > 0 {
        eprintln!(
            "mae: {cut} prompts are longer than the model's positions allow: of these, the last {room} tokens are read"
        );
    }
    if unknown > 0 {
        eprintln!("mae: {unknown} tokens of the prompts are not in the dictionary and are read as <unk>");
    }
    prompts
}

impl Args {
    fn options(&self) -> Result<ContinueOptions> {
        ensure!(self.max_len > 0 && self.nbest > 0, "--max-len and --nbest must be above 0");
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
            max_len: self.max_len,
            sampling: self.sampling.then_some(sampling),
            temperature: self.temperature,
            seed: self.seed,
            unknown: !self.no_unk,
        })
    }

    fn lines(&self) -> Result<Vec<String>> {
        let Some(path) = &self.source else { return Ok(self.prompt.clone()) };
        let lines = open(path)?.collect::<mae_data::Result<Vec<String>>>();
        lines.with_context(|| format!("--source {}", path.display()))
    }

    fn print(
        &self,
        out: &mut impl Write,
        folder: &LmFolder,
        (line, prompt): (&str, &Prompt),
        found: &Continuation,
    ) -> Result<()> {
        let join = |tokens: &[u32]| text(&folder.dictionary, folder.codes.as_ref(), tokens);
        let whole = join(&[&prompt.tokens[..], &found.tokens].concat());
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
