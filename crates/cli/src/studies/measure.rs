//! What a trained model is worth: translations and their BLEU, one expert instead of the mixture, perplexity, gates.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use mae_data::moses::{Detokenizer, Escapes, Lang};
use mae_data::pairs::side_path;
use mae_data::{BlockOptions, Blocks, BreakMode, IndexedDataset, ParallelDataset, Segmentation, TextDataset};
use mae_engine::Device;
use mae_eval::analysis::text::Text;
use mae_eval::analysis::{self, analyse, one_expert};
use mae_eval::bleu::{BleuConfig, BleuScore, BleuStats, Compounds};
use mae_eval::perplexity::{TextMeasure, log_probs, stretches};
use mae_eval::translate::translate;
use mae_model::folder::{ModelFolder, write_aside};
use mae_model::lm::LmFolder;
use mae_model::{ExpertMode, Translator};
use mae_train::TrainConfig;
use mae_train::finetune::dictionary_fault;
use mae_train::validate::development_loss;
use mae_translate::SearchOptions;

use super::protocol::{LanguageModel, Translation};
use super::references::{PLAIN, References, TOKENS, joined, pairs};
use super::result::{Development, Gates, OneExpert, Predicted, Translated};
use super::significance::{LIKELIHOODS, Likelihoods, STRETCH_TOKENS};
use crate::progress;
use crate::training::material::Sets;

/// Tokens at most in a batch of a language model's text.
const MAX_TOKENS: u32 = 16_384;

/// BLEU as `test` wants it on whitespace tokens, and on plain text.
pub fn bleu_configs(test: &Translation) -> [BleuConfig; 2] {
    let compounds = if test.compound_split { Compounds::Split } else { Compounds::Whole };
    let tokenised = BleuConfig { compounds, ..BleuConfig::multi_bleu() };
    [tokenised, BleuConfig { lowercase: test.lowercase, ..BleuConfig::default() }]
}

fn bleu(config: BleuConfig, lines: &[String], references: &[String]) -> Result<BleuScore> {
    let mut stats = BleuStats::new(config);
    for (line, reference) in lines.iter().zip(references) {
        stats.add(line, &[reference])?;
    }
    Ok(stats.score())
}

/// What was found of a translation model.
pub struct TranslationFound {
    pub dev: Option<Development>,
    pub gates: Option<Gates>,
    pub translated: Translated,
}

/// Translates and scores the test set, and looks at the development set; translations go to the run's folder.
pub fn translation(
    (model, run): (&Path, &Path),
    sets: Sets<'_>,
    (test, references): (&Translation, &References),
    config: &TrainConfig,
    device: &Device,
) -> Result<TranslationFound> {
    let path = model;
    let ModelFolder { model, codes, source, target } = ModelFolder::load(path, device)?;
    let data = pairs(sets, &test.split)?;
    let faults = [
        dictionary_fault("source dictionaries", &source, &data.src_vocab),
        dictionary_fault("target dictionaries", &target, &data.tgt_vocab),
    ];
    if let Some(fault) = faults.into_iter().flatten().next() {
        bail!(
            "{} was not made for {}: {fault}; prepare it with the model's dictionaries and codes",
            sets.folder.display(),
            path.display()
        );
    }
    let codes = codes.as_ref();
    let options = SearchOptions { beam: test.beam, lenpen: test.lenpen, ..SearchOptions::default() };
    let tokens = translate(&model, &data.src, (&data.tgt_vocab, codes), &options, &ExpertMode::Mix)?;
    write_aside(&run.join(TOKENS[1]), joined(&tokens).as_bytes())?;
    let [of_tokens, of_text] = bleu_configs(test);
    let plain = match &references.plain {
        None => None,
        Some(references) => {
            let detokenizer = Detokenizer::new(test.language.parse::<Lang>()?, Escapes::Entities);
            let lines: Vec<String> = tokens.iter().map(|line| detokenizer.detokenize(line)).collect();
            write_aside(&run.join(PLAIN[1]), joined(&lines).as_bytes())?;
            Some(bleu(of_text, &lines, references)?)
        }
    };
    let one_expert = match test.draws {
        draws if draws > 0 && model.config().mixture.system.has_experts() => {
            Some(one_expert(&model, &data, codes, test.beam, draws)?)
        }
        _ => None,
    };
    let (source, target) = sets.languages()?;
    let (dev, gates) =
        if IndexedDataset::exists(side_path(sets.folder, sets.valid, [&source, &target], &source)) {
            let valid = pairs(sets, sets.valid)?;
            let found = development_loss(&model, &valid, config)?;
            let dev = Development {
                loss: found.loss,
                nll_loss: found.nll_loss,
                ppl: found.ppl,
                gate_entropy: found.gate_entropy,
            };
            (Some(dev), gates(&model, &valid, codes)?)
        } else {
            (None, None)
        };
    let translated = Translated {
        split: test.split.clone(),
        bleu: plain.as_ref().map(|score| score.score),
        signature: plain.as_ref().map(|score| format!("BLEU|{}", score.signature)),
        bleu_tokenised: bleu(of_tokens, &tokens, &references.tokens)?.score,
        compound_split: test.compound_split,
        one_expert,
    };
    Ok(TranslationFound { dev, gates, translated })
}

fn one_expert(
    model: &Translator,
    data: &ParallelDataset,
    codes: Option<&Segmentation>,
    beam: usize,
    draws: usize,
) -> Result<OneExpert> {
    let random = one_expert::Random { draws, seed: 1 };
    // The mixture is translated, too.
    let translations = 1 + random.evaluations(model.config().mixture.system.is_gated());
    let bar = progress::bar(translations as u64, "Translating with one expert");
    let found = one_expert::evaluate(model, data, codes, (beam, random), || bar.inc(1))?;
    bar.finish_and_clear();
    Ok(OneExpert { mixture: found.mixture, argmax: found.argmax, random: found.random })
}

fn gates(model: &Translator, valid: &ParallelDataset, codes: Option<&Segmentation>) -> Result<Option<Gates>> {
    let system = model.config().mixture.system;
    if !(system.is_gated() && system.has_experts()) {
        return Ok(None);
    }
    let options = analysis::Options { min_count: u64::MAX, top_words: 0, sentences: 0 };
    let found = analyse(model, valid, codes, options, |_| {})?;
    Ok(Some(Gates {
        encoder: found.entropy.encoder,
        decoder: found.entropy.decoder,
        cross: found.entropy.cross,
        uniform: found.uniform_entropy.unwrap_or_default(),
        collapsed: found.collapse.collapsed,
        verdict: found.collapse.words,
    }))
}

fn one_expert_of_text(
    model: &mae_model::LanguageModel,
    text: Text<'_>,
    mixture: &TextMeasure,
    draws: usize,
) -> Result<OneExpert> {
    let random = one_expert::Random { draws, seed: 1 };
    let evaluations = random.evaluations(model.config().mixture.system.is_gated()) as u64;
    let bar = progress::bar(evaluations * text.blocks.tokens(), "Reading with one expert");
    let found = one_expert::evaluate_text(model, text, mixture, random, |done| bar.set_position(done))?;
    bar.finish_and_clear();
    Ok(OneExpert { mixture: found.mixture, argmax: found.argmax, random: found.random })
}

/// What was found of a language model.
pub struct LanguageFound {
    pub dev: Option<Development>,
    pub predicted: BTreeMap<String, Predicted>,
}

/// Measures perplexities with the context protocol, and the development loss as in training; likelihoods go to the run's
/// folder.
pub fn language_model(
    (model, run): (&Path, &Path),
    sets: Sets<'_>,
    test: &LanguageModel,
    config: &TrainConfig,
    device: &Device,
) -> Result<LanguageFound> {
    let LmFolder { model, codes, .. } = LmFolder::load(model, device)?;
    let positions = model.config().max_positions;
    ensure!(
        test.tokens_per_sample <= positions,
        "language_model.tokens_per_sample = {}: the model has {positions} positions",
        test.tokens_per_sample
    );
    let (mut predicted, mut likelihoods) = (BTreeMap::new(), Likelihoods::new());
    for split in &test.splits {
        let data = TextDataset::open(sets.folder, split)?;
        let options = BlockOptions {
            tokens_per_sample: test.tokens_per_sample,
            context_window: test.context_window,
            break_mode: BreakMode::None,
        };
        let blocks = Blocks::new(data.lines.clone(), options)?;
        ensure!(blocks.tokens() > 0, "{}: the split `{split}` is empty", sets.folder.display());
        let bar = progress::bar(blocks.tokens(), split);
        let found = log_probs(&model, &blocks, MAX_TOKENS, &ExpertMode::Mix, |done| bar.set_position(done))?;
        bar.finish_and_clear();
        let lengths = (0..data.lines.len()).map(|i| data.lines.size(i));
        likelihoods.insert(split.clone(), stretches(lengths, &found, STRETCH_TOKENS));
        let measure = TextMeasure::of(&data, codes.as_ref(), &found);
        let one_expert = if test.draws > 0
            && Some(split) == test.splits.last()
            && model.config().mixture.system.has_experts()
        {
            let text = Text { data: &data, codes: codes.as_ref(), blocks: &blocks, max_tokens: MAX_TOKENS };
            Some(one_expert_of_text(&model, text, &measure, test.draws)?)
        } else {
            None
        };
        let (ppl, ppl_per_word) =
            (measure.perplexity_per(measure.tokens), measure.perplexity_per(measure.words));
        predicted.insert(split.clone(), Predicted { tokens: measure.tokens, ppl, ppl_per_word, one_expert });
    }
    write_aside(&run.join(LIKELIHOODS), serde_json::to_string(&likelihoods)?.as_bytes())?;
    let dev = if IndexedDataset::exists(sets.folder.join(sets.valid)) {
        let options = BlockOptions {
            tokens_per_sample: config.tokens_per_sample,
            context_window: 0,
            break_mode: config.sample_break_mode,
        };
        let blocks = Blocks::new(TextDataset::open(sets.folder, sets.valid)?.lines, options)?;
        let found = development_loss(&model, &blocks, config)?;
        Some(Development {
            loss: found.loss,
            nll_loss: found.nll_loss,
            ppl: found.ppl,
            gate_entropy: found.gate_entropy,
        })
    } else {
        None
    };
    Ok(LanguageFound { dev, predicted })
}
