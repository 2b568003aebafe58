//! A language model on a text.

use anyhow::{Result, bail, ensure};
use mae_eval::analysis::one_expert::evaluate_text;
use mae_eval::analysis::text::{Text, analyse_text};

use super::{Args, Found, importance};
use crate::lm_text::{Opened, Source, load};
use crate::progress;

/// Everything there is to find.
pub(super) fn find(args: &Args) -> Result<Found> {
    ensure!(
        args.beam.is_none() && args.source_lang.is_none(),
        "{} is a language model; --beam and languages are for translation models",
        args.model.display()
    );
    let max_tokens = args.blocks.max_tokens()?;
    let mut folder = load(&args.model, &args.device.open()?)?;
    let config = folder.model.config();
    let system = config.mixture.system;
    args.check_system(system)?;
    let folder_of_data = args.data.folder();
    let source = match (&args.text, &folder_of_data) {
        (Some(text), _) => Source::Text(text),
        (None, Some(data)) => Source::Split(data, args.split()),
        (None, None) => {
            bail!(
                "no data: give a preprocessed folder after the model or with --data, or a text with --text FILE"
            )
        }
    };
    let Opened { data, name, .. } = source.open(&folder, &args.model)?;
    let blocks = args.blocks.cut(&data, &name, config.max_positions)?;
    let text = Text { data: &data, codes: folder.codes.as_ref(), blocks: &blocks, max_tokens };
    let untrained = args.untrained(&folder.model)?;
    let bar = progress::bar(blocks.tokens(), "Reading gates");
    let analysis =
        analyse_text(&folder.model, text, args.options(), untrained.as_ref(), |done| bar.set_position(done))?;
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
    let importance = args.importance.then(|| importance::measure(&mut folder.model, &blocks)).transpose()?;
    Ok(args.found(system, analysis, one_expert, importance))
}
