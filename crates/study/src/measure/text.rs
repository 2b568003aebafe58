//! Scores of a language model.

use std::collections::BTreeMap;
use std::path::Path;

use mae_data::{BlockOptions, Blocks, BreakMode, IndexedDataset, TextDataset, files};
use mae_engine::Device;
use mae_eval::analysis::one_expert;
use mae_eval::analysis::text::Text;
use mae_eval::perplexity::{TextMeasure, log_probs, stretches};
use mae_model::ExpertMode;
use mae_model::lm::LmFolder;
use mae_train::TrainConfig;
use mae_train::run::Sets;
use mae_train::validate::development_loss;

use crate::error::{Error, Result};
use crate::observer::{Event, Observer};
use crate::outputs::{LIKELIHOODS, Likelihoods, STRETCH_TOKENS};
use crate::protocol::LanguageModel;
use crate::result::{Development, OneExpert, Predicted};

/// Tokens at most in a batch of a text.
const MAX_TOKENS: u32 = 16_384;

/// Scores of a language model.
pub(crate) struct LanguageModelScores {
    pub(crate) dev: Option<Development>,
    pub(crate) predicted: BTreeMap<String, Predicted>,
}

/// Measures perplexities with the context protocol, and the development loss as in training; likelihoods go to the run's
/// folder.
pub(crate) fn measure_language_model(
    (path, run): (&Path, &Path),
    sets: Sets<'_>,
    test: &LanguageModel,
    config: &TrainConfig,
    device: &Device,
    observer: &mut dyn Observer,
) -> Result<LanguageModelScores> {
    let LmFolder { model, codes, .. } = LmFolder::load(path, device)?;
    let positions = model.config().max_positions;
    if test.tokens_per_sample > positions {
        return Err(Error::Positions { tokens: test.tokens_per_sample, positions });
    }
    let (mut predicted, mut likelihoods) = (BTreeMap::new(), Likelihoods::new());
    for split in &test.splits {
        let data = TextDataset::open(sets.folder, split)?;
        let options = BlockOptions {
            tokens_per_sample: test.tokens_per_sample,
            context_window: test.context_window,
            break_mode: BreakMode::None,
        };
        let blocks = Blocks::new(data.lines.clone(), options)?;
        let total = blocks.tokens();
        if total == 0 {
            return Err(Error::EmptySplit { data: sets.folder.to_owned(), split: split.clone() });
        }
        let progress = |done| observer.event(&Event::Progress { stage: split, done, total });
        let found = log_probs(&model, &blocks, MAX_TOKENS, &ExpertMode::Mix, progress)?;
        let lengths = (0..data.lines.len()).map(|i| data.lines.size(i));
        likelihoods.insert(split.clone(), stretches(lengths, &found, STRETCH_TOKENS));
        let measure = TextMeasure::of(&data, codes.as_ref(), &found);
        let one_expert = if test.draws > 0
            && Some(split) == test.splits.last()
            && model.config().mixture.system.has_experts()
        {
            let text = Text { data: &data, codes: codes.as_ref(), blocks: &blocks, max_tokens: MAX_TOKENS };
            Some(with_one_expert(&model, text, &measure, test.draws, observer)?)
        } else {
            None
        };
        let (ppl, ppl_per_word) =
            (measure.perplexity_per(measure.tokens), measure.perplexity_per(measure.words));
        predicted.insert(split.clone(), Predicted { tokens: measure.tokens, ppl, ppl_per_word, one_expert });
    }
    let text = serde_json::to_string(&likelihoods).expect("likelihoods can always be written as JSON");
    files::write(run.join(LIKELIHOODS), text.as_bytes())?;
    let dev = if IndexedDataset::exists(sets.folder.join(sets.valid)) {
        let options = BlockOptions {
            tokens_per_sample: config.tokens_per_sample,
            context_window: 0,
            break_mode: config.sample_break_mode,
        };
        let blocks = Blocks::new(TextDataset::open(sets.folder, sets.valid)?.lines, options)?;
        Some(development_loss(&model, &blocks, config)?.into())
    } else {
        None
    };
    Ok(LanguageModelScores { dev, predicted })
}

fn with_one_expert(
    model: &mae_model::LanguageModel,
    text: Text<'_>,
    mixture: &TextMeasure,
    draws: usize,
    observer: &mut dyn Observer,
) -> Result<OneExpert> {
    let random = one_expert::Random { draws, seed: 1 };
    let evaluations = random.evaluations(model.config().mixture.system.is_gated()) as u64;
    let (stage, total) = ("Reading with one expert", evaluations * text.blocks.tokens());
    let progress = |done| observer.event(&Event::Progress { stage, done, total });
    let found = one_expert::evaluate_text(model, text, mixture, random, progress)?;
    Ok(OneExpert { mixture: found.mixture, argmax: found.argmax, random: found.random, encoder: None })
}
