//! A language model on a text.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use mae_data::TextDataset;
use mae_eval::analysis::one_expert::evaluate_text;
use mae_eval::analysis::text::{Text, analyse_text};
use mae_model::lm::LmFolder;

use super::{Args, Found};
use crate::commands::eval_lm::{load, open_split};
use crate::commands::generate::input;
use crate::progress;

/// Everything there is to find.
pub(super) fn find(args: &Args) -> Result<Found> {
    ensure!(
        args.beam.is_none() && args.source_lang.is_none(),
        "{} is a language model; --beam and languages are for translation models",
        args.model.display()
    );
    let max_tokens = args.blocks.max_tokens()?;
    let folder = load(&args.model, &args.device)?;
    let config = folder.model.config();
    let system = config.mixture.system;
    args.check_system(system)?;
    let (data, name) = open(args, &folder)?;
    let blocks = args.blocks.cut(&data, &name, config.max_positions)?;
    let text = Text { data: &data, codes: folder.codes.as_ref(), blocks: &blocks, max_tokens };
    let bar = progress::bar(blocks.tokens(), "Reading gates");
    let analysis = analyse_text(&folder.model, text, args.options(), |done| bar.set_position(done))?;
    bar.finish_and_clear();
    let one_expert = match &analysis.text {
        Some(mixture) if args.one_expert => {
            let random = args.random();
            let tokens = blocks.tokens() * random.evaluations(system.is_gated()) as u64;
            let bar = progress::bar(tokens, "One expert");
            let scores =
                evaluate_text(&folder.model, text, &mixture.measure, random, |done| bar.set_position(done))?;
            bar.finish_and_clear();
            Some(scores)
        }
        _ => None,
    };
    Ok(args.found(system, analysis, one_expert))
}

/// The text, with its name for messages.
fn open(args: &Args, folder: &LmFolder) -> Result<(TextDataset, String)> {
    if let Some(path) = &args.text {
        let name = format!("the text {}", path.display());
        return Ok((read(path, folder).with_context(|| name.clone())?, name));
    }
    let (path, split) = (args.data.as_ref().context("--data is missing")?, args.split());
    let name = format!("{}: the split `{split}`", path.display());
    Ok((open_split(folder, &args.model, path, split)?, name))
}

/// A text that is not binarised; what was repaired is told.
fn read(path: &Path, folder: &LmFolder) -> Result<TextDataset> {
    let mut reader = input::open(path)?;
    let lines = reader.by_ref().collect::<mae_data::Result<Vec<String>>>()?;
    if !reader.issues().is_empty() {
        eprintln!("mae: {}: {}", reader.path().display(), reader.issues());
    }
    Ok(TextDataset::from_lines(&lines, folder.dictionary.clone(), folder.codes.as_ref()))
}
