//! Scores of a translation model.

use std::path::Path;

use mae_data::moses::{Detokenizer, Escapes, Lang};
use mae_data::pairs::side_path;
use mae_data::{IndexedDataset, ParallelDataset, Segmentation, files};
use mae_engine::Device;
use mae_eval::analysis::{self, analyse, one_expert};
use mae_eval::bleu::{BleuConfig, BleuScore, BleuStats};
use mae_model::folder::ModelFolder;
use mae_model::{ExpertMode, Translator};
use mae_train::TrainConfig;
use mae_train::dictionaries::mismatch;
use mae_train::run::Sets;
use mae_train::validate::development_loss;
use mae_translate::{SearchOptions, best_lines};

use crate::error::{Error, PlanFault, Result};
use crate::observer::{Event, Observer};
use crate::outputs::{PLAIN, TOKENS, joined};
use crate::protocol::Translation;
use crate::references::References;
use crate::result::{Development, Gates, OneExpert, Translated};
use crate::score::BleuConfigs;

/// Scores of a translation model.
pub(crate) struct TranslationScores {
    pub(crate) dev: Option<Development>,
    pub(crate) gates: Option<Gates>,
    pub(crate) translated: Translated,
}

/// Translates and scores the test set, and measures the development set; translations go to the run's folder.
pub(crate) fn measure_translation(
    (path, run): (&Path, &Path),
    sets: Sets<'_>,
    (test, references): (&Translation, &References),
    config: &TrainConfig,
    device: &Device,
    observer: &mut dyn Observer,
) -> Result<TranslationScores> {
    let ModelFolder { model, codes, source, target } = ModelFolder::load(path, device)?;
    let data = sets.pairs(&test.split)?;
    let faults = [
        mismatch("source dictionaries", &source, &data.src_vocab),
        mismatch("target dictionaries", &target, &data.tgt_vocab),
    ];
    if let Some(fault) = faults.into_iter().flatten().next() {
        let (data, model) = (sets.folder.to_owned(), path.to_owned());
        return Err(Error::OtherDictionary { data, model, fault: Box::new(fault) });
    }
    let codes = codes.as_ref();
    let options = SearchOptions { beam: test.beam, lenpen: test.lenpen, ..SearchOptions::default() };
    let tokens = best_lines(&model, &data.src, (&data.tgt_vocab, codes), &options, &ExpertMode::Mix)?;
    files::write(run.join(TOKENS.translations), joined(&tokens).as_bytes())?;
    let configs = BleuConfigs::of(test);
    let plain = match &references.plain {
        None => None,
        Some(references) => {
            let language = test.language.parse::<Lang>();
            let language = language.map_err(|error| PlanFault::Language(error.to_string()))?;
            let detokenizer = Detokenizer::new(language, Escapes::Entities);
            let lines: Vec<String> = tokens.iter().map(|line| detokenizer.detokenize(line)).collect();
            files::write(run.join(PLAIN.translations), joined(&lines).as_bytes())?;
            Some(bleu(configs.plain, &lines, references)?)
        }
    };
    let one_expert = match test.draws {
        draws if draws > 0 && model.config().mixture.system.has_experts() => {
            Some(with_one_expert(&model, &data, codes, (test.beam, draws), observer)?)
        }
        _ => None,
    };
    let (source, target) = sets.languages()?;
    let valid = side_path(sets.folder, sets.valid, [&source, &target], &source);
    let (dev, gates) = if IndexedDataset::exists(valid) {
        let valid = sets.pairs(sets.valid)?;
        (Some(development_loss(&model, &valid, config)?.into()), gates(&model, &valid, codes)?)
    } else {
        (None, None)
    };
    let translated = Translated {
        split: test.split.clone(),
        bleu: plain.as_ref().map(|score| score.score),
        signature: plain.as_ref().map(|score| format!("BLEU|{}", score.signature)),
        bleu_tokenised: bleu(configs.tokens, &tokens, &references.tokens)?.score,
        compound_split: test.compound_split,
        one_expert,
    };
    Ok(TranslationScores { dev, gates, translated })
}

fn bleu(config: BleuConfig, lines: &[String], references: &[String]) -> Result<BleuScore> {
    let mut stats = BleuStats::new(config);
    for (line, reference) in lines.iter().zip(references) {
        stats.add(line, &[reference])?;
    }
    Ok(stats.score())
}

fn with_one_expert(
    model: &Translator,
    data: &ParallelDataset,
    codes: Option<&Segmentation>,
    (beam, draws): (usize, usize),
    observer: &mut dyn Observer,
) -> Result<OneExpert> {
    let random = one_expert::Random { draws, seed: 1 };
    // The mixture is translated, too.
    let total = 1 + random.evaluations(model.config().mixture.system.is_gated()) as u64;
    let (stage, mut done) = ("Translating with one expert", 0);
    observer.event(&Event::Progress { stage, done, total });
    let found = one_expert::evaluate(model, data, codes, (beam, random), || {
        done += 1;
        observer.event(&Event::Progress { stage, done, total });
    })?;
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
