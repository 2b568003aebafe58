//! Gates of a measured model, and what they are worth.

use std::path::Path;

use mae_data::{ParallelDataset, Segmentation};
use mae_eval::analysis::tags::Tags;
use mae_eval::analysis::{self, AttentionReport, Beside, Means, analyse, oracle};
use mae_model::{Translator, init};
use mae_train::TrainConfig;
use mae_train::validate::{development_loss, untrained_gates};

use crate::error::Result;
use crate::observer::{Event, Observer};
use crate::protocol::Translation;
use crate::result::{AttentionGates, Development, GateMeans, Gates};

/// Reads the gates of a development set, and beside them those that the run began with; `None` for systems without gates
/// over experts.
pub(super) fn gates(
    model: &Translator,
    (valid, codes): (&ParallelDataset, Option<&Segmentation>),
    tags: Option<&Tags>,
    config: &TrainConfig,
) -> Result<Option<Gates>> {
    let system = model.config().mixture.system;
    if !(system.is_gated() && system.has_experts()) {
        return Ok(None);
    }
    let options = analysis::Options { min_count: u64::MAX, top_words: 0, sentences: 0 };
    let untrained = untrained_gates(model, config)?;
    let beside = Beside { untrained: Some(&untrained), tags };
    let found = analyse(model, (valid, codes), options, beside, |_| {})?;
    let Means { encoder, decoder, cross, .. } = found.entropy;
    Ok(Some(Gates {
        encoder,
        decoder,
        cross,
        uniform: found.uniform_entropy.unwrap_or_default(),
        collapsed: found.collapse.collapsed,
        verdict: found.collapse.words,
        information: Some(found.information),
        untrained: Some(GateMeans {
            entropy: found.untrained_entropy,
            information: found.untrained_information,
        }),
        tag_entropy: tags.map(Tags::entropy),
        updates: None,
        gradient_norm: None,
        attentions: found.attentions.iter().map(attention).collect(),
    }))
}

fn attention(report: &AttentionReport) -> AttentionGates {
    let rounded = |values: &[f64]| values.iter().map(|value| (value * 1e5).round() / 1e5).collect();
    let untrained = report.untrained.as_ref();
    AttentionGates {
        attention: report.label.clone(),
        entropy: report.entropy,
        information: report.information,
        load: rounded(&report.mean_gate),
        untrained_entropy: untrained.and_then(|gates| gates.entropy),
        untrained_information: untrained.and_then(|gates| gates.information),
        tag_information: report.tags.as_ref().map(|tags| tags.information),
        untrained_tag_information: untrained.and_then(|gates| Some(gates.tags.as_ref()?.information)),
        untrained_load: untrained.map_or_else(Vec::new, |gates| rounded(&gates.mean_gate)),
    }
}

/// Makes all experts weigh alike and measures the development set again.
pub(super) fn make_uniform(
    model: &mut Translator,
    valid: Option<&ParallelDataset>,
    config: &TrainConfig,
) -> Result<Option<Development>> {
    let system = model.config().mixture.system;
    init::make_neutral(model.params_mut(), system)?;
    Ok(valid.map(|valid| development_loss(model, valid, config)).transpose()?.map(Into::into))
}

/// Reads the tags of a set, where the protocol asks for them.
pub(super) fn tags(folder: &Path, split: &str, test: &Translation) -> Result<Option<Tags>> {
    let read = || Tags::read(&folder.join(format!("{split}.{}", test.tags)));
    Ok((!test.tags.is_empty()).then(read).transpose()?)
}

/// Lets an oracle choose experts on the development set, where the protocol asks for it.
pub(super) fn ask_oracle(
    model: &Translator,
    valid: &ParallelDataset,
    test: &Translation,
    observer: &mut dyn Observer,
) -> Result<Option<oracle::Oracle>> {
    if test.oracle == 0 {
        return Ok(None);
    }
    let (stage, total) = ("Asking an oracle", test.oracle.min(valid.len()) as u64);
    let progress = |done| observer.event(&Event::Progress { stage, done, total });
    Ok(oracle::split_half(model, valid, test.oracle, progress)?)
}
