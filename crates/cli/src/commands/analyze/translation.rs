//! A translation model on sentence pairs.

use anyhow::{Context, Result, anyhow, bail, ensure};
use mae_data::ParallelDataset;
use mae_data::pairs::detect_languages;
use mae_eval::Error;
use mae_eval::analysis::tags::Tags;
use mae_eval::analysis::{Beside, analyse, one_expert};
use mae_model::folder::ModelFolder;

use super::{Args, Found, importance};
use crate::commands::validate::open_split;
use crate::progress;

/// Everything there is to find.
pub(super) fn find(args: &Args) -> Result<Found> {
    let beam = args.beam.unwrap_or(5);
    ensure!(beam > 0, "--beam 0 finds nothing; it must be at least 1");
    let name = args.model.display();
    ensure!(
        args.text.is_none(),
        "{name} is a translation model, --text is for language models: give it --data"
    );
    ensure!(
        !args.blocks.given(),
        "{name} is a translation model; --tokens-per-sample, --context-window, --sample-break-mode and --max-tokens are for \
         language models"
    );
    let folder =
        ModelFolder::load(&args.model, &args.device.open()?).with_context(|| format!("model {name}"))?;
    let system = folder.model.config().mixture.system;
    args.check_system(system)?;
    let data = open(args, &folder)?;
    let ModelFolder { mut model, codes, .. } = folder;
    let bar = progress::bar(data.len() as u64, "Reading gates");
    let (pairs, untrained) = ((&data, codes.as_ref()), args.untrained(&model)?);
    let tags = args.tags.as_deref().map(Tags::read).transpose().context("--tags")?;
    let beside = Beside { untrained: untrained.as_ref(), tags: tags.as_ref() };
    let analysis = analyse(&model, pairs, args.options(), beside, |done| bar.set_position(done));
    let analysis = analysis.map_err(|error| match error {
        error @ Error::Tags { .. } => anyhow!("--tags: {error}"),
        error => error.into(),
    })?;
    bar.finish_and_clear();
    if analysis.sentences == 0 {
        bail!("{} has no sentence pairs that fit into the model", args.split());
    }
    let one_expert = if args.one_expert {
        let random = args.random();
        let translations = 1 + random.evaluations(system.is_gated());
        let bar = progress::bar(translations as u64, "Translating the split");
        let settings = (beam, random, one_expert::Where::Everywhere);
        let scores = one_expert::evaluate(&model, &data, codes.as_ref(), settings, || bar.inc(1))?;
        bar.finish_and_clear();
        Some(scores)
    } else {
        None
    };
    let importance = args.importance.then(|| importance::measure(&mut model, &data)).transpose()?;
    Ok(args.found(system, analysis, one_expert, importance))
}

/// The split, which must have been made with the model's dictionaries.
fn open(args: &Args, folder: &ModelFolder) -> Result<ParallelDataset> {
    let path = &args.data.needed("")?;
    let (from, to) = match (&args.source_lang, &args.target_lang) {
        (Some(from), Some(to)) => (from.clone(), to.clone()),
        _ => detect_languages(path)?,
    };
    open_split(folder, &args.model, path, args.split(), (&from, &to))
}
