//! Language models and the texts that commands read with them: splits or plain text, cut into blocks.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use mae_data::{BlockOptions, Blocks, BreakMode, TextDataset};
use mae_engine::Device;
use mae_model::folder::{Task, task};
use mae_model::lm::LmFolder;
use mae_train::dictionaries::mismatch;

use crate::commands::generate::input::all_lines;

/// Loads a language model; says what to do where it is none.
pub fn load(path: &Path, device: &Device) -> Result<LmFolder> {
    if task(path)? == Task::Translation {
        bail!(
            "{} is a translation model, a language model is needed here: `mae validate {0} --data DIR` measures it, \
             `mae generate {0}` translates with it",
            path.display()
        );
    }
    LmFolder::load(path, device).with_context(|| format!("model {}", path.display()))
}

/// A text to read.
pub struct Opened {
    pub data: TextDataset,
    /// For messages.
    pub name: String,
    /// As it is, where it was not binarised before.
    pub lines: Option<Vec<String>>,
}

/// Origin of a text.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// A split of a folder, which must have been made with the model's dictionary.
    Split(&'a Path, &'a str),
    /// A text as it is, to be cut with the model's codes; `-` is standard input.
    Text(&'a Path),
}

impl Source<'_> {
    /// Opens the text for the model in `path` and prints what was repaired.
    pub fn open(self, folder: &LmFolder, path: &Path) -> Result<Opened> {
        match self {
            Self::Split(data, split) => {
                let text = TextDataset::open(data, split)?;
                if let Some(fault) = mismatch("dictionaries", &folder.dictionary, &text.vocab) {
                    bail!("{} was not made for {}: {fault}", data.display(), path.display());
                }
                let name = format!("{}: the split `{split}`", data.display());
                Ok(Opened { data: text, name, lines: None })
            }
            Self::Text(file) => {
                let name = format!("the text {}", file.display());
                let lines = all_lines(file).with_context(|| name.clone())?;
                let codes = folder.codes.as_ref();
                let data = TextDataset::from_lines(&lines, folder.dictionary.clone(), codes);
                Ok(Opened { data, name, lines: Some(lines) })
            }
        }
    }

    /// Name of its numbers.
    pub fn label(self) -> String {
        match self {
            Self::Split(_, split) => split.to_owned(),
            Self::Text(file) => file.display().to_string(),
        }
    }
}

/// Flags of cutting a text into blocks.
#[derive(clap::Args)]
pub struct BlockArgs {
    /// Tokens per block, including its context [default: the model's positions].
    #[arg(long, value_name = "N")]
    tokens_per_sample: Option<usize>,
    /// Tokens of a block that are context: scored before and read again [default: 0].
    #[arg(long, value_name = "C")]
    context_window: Option<usize>,
    /// End of blocks: none (when they are full), complete (as many whole lines as fit) or eos (one line each) [default:
    /// none].
    #[arg(long, value_name = "MODE")]
    sample_break_mode: Option<BreakMode>,
    /// Largest number of tokens in a batch [default: 4096].
    #[arg(long, value_name = "N")]
    max_tokens: Option<u32>,
}

impl BlockArgs {
    /// Returns true if any of them was given.
    pub fn given(&self) -> bool {
        self.tokens_per_sample.is_some()
            || self.context_window.is_some()
            || self.sample_break_mode.is_some()
            || self.max_tokens.is_some()
    }

    /// Tokens at most in a batch.
    pub fn max_tokens(&self) -> Result<u32> {
        let max_tokens = self.max_tokens.unwrap_or(4096);
        ensure!(max_tokens > 0, "--max-tokens must be above 0");
        Ok(max_tokens)
    }

    fn options(&self, positions: usize) -> Result<BlockOptions> {
        let tokens_per_sample = self.tokens_per_sample.unwrap_or(positions);
        ensure!(
            tokens_per_sample <= positions,
            "--tokens-per-sample {tokens_per_sample}: the model has {positions} positions, and a block cannot be longer"
        );
        Ok(BlockOptions {
            tokens_per_sample,
            context_window: self.context_window.unwrap_or(0),
            break_mode: self.sample_break_mode.unwrap_or_default(),
        })
    }

    /// Cuts a text, called `name` in messages, for a model of so many positions.
    pub fn cut(&self, data: &TextDataset, name: &str, positions: usize) -> Result<Blocks> {
        let blocks = Blocks::new(data.lines.clone(), self.options(positions)?)?;
        let longest = blocks.lengths().iter().map(|&(_, tokens)| tokens as usize).max().unwrap_or(0);
        ensure!(longest > 0, "{name} is empty");
        ensure!(
            longest <= positions,
            "a line of {name} has {longest} tokens, the model has {positions} positions: --sample-break-mode none cuts \
             lines"
        );
        Ok(blocks)
    }
}
