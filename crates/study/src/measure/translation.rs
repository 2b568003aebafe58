//! Scores of a translation model.

use std::collections::BTreeMap;
use std::path::Path;

use mae_data::moses::{Detokenizer, Escapes, Lang};
use mae_data::pairs::side_path;
use mae_data::{IndexedDataset, ParallelDataset, Segmentation, files};
use mae_engine::Device;
use mae_eval::analysis::tags::Tags;
use mae_eval::analysis::{one_expert, oracle};
use mae_eval::bleu::{BleuConfig, BleuScore, BleuStats, exact_match};
use mae_model::folder::ModelFolder;
use mae_model::{ExpertMode, Translator};
use mae_train::TrainConfig;
use mae_train::dictionaries::mismatch;
use mae_train::run::Sets;
use mae_train::validate::development_loss;
use mae_translate::{SearchOptions, best_lines};

use super::gates::{ask_oracle, gates, make_uniform, tags};
use crate::error::{Error, PlanFault, Result};
use crate::observer::{Event, Observer};
use crate::outputs::{PLAIN, TOKENS, joined};
use crate::protocol::Translation;
use crate::references::References;
use crate::result::{Development, Gates, OneExpert, Translated, UniformGates};
use crate::score::BleuConfigs;

/// Scores of a translation model.
pub(crate) struct TranslationScores {
    pub(crate) dev: Option<Development>,
    pub(crate) gates: Option<Gates>,
    pub(crate) oracle: Option<oracle::Oracle>,
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
    let ModelFolder { mut model, codes, source, target, .. } = ModelFolder::load(path, device)?;
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
    let scorer = Scorer { data: &data, codes, test, references };
    let (tokens, lines) = scorer.translate(&model)?;
    files::write(run.join(TOKENS.translations), joined(&tokens).as_bytes())?;
    if let Some(lines) = &lines {
        files::write(run.join(PLAIN.translations), joined(lines).as_bytes())?;
    }
    let scores = scorer.score(&tokens, lines.as_deref())?;
    let by_tag = match tags(sets.folder, &test.split, test)? {
        None => BTreeMap::new(),
        Some(tags) if tags.of_sentence.len() == data.len() => {
            scorer.by_tag(&tags, &tokens, lines.as_deref())?
        }
        Some(tags) => {
            let (tags, sentences) = (tags.of_sentence.len(), data.len());
            return Err(mae_eval::Error::Tags { tags, sentences }.into());
        }
    };
    let one_expert = match test.draws {
        draws if draws > 0 && model.config().mixture.system.has_experts() => {
            Some(with_one_expert(&model, &data, codes, test, observer)?)
        }
        _ => None,
    };
    let (source, target) = sets.languages()?;
    let valid = side_path(sets.folder, sets.valid, [&source, &target], &source);
    let valid = IndexedDataset::exists(valid).then(|| sets.pairs(sets.valid)).transpose()?;
    let (mut dev, mut found, mut oracle) = (None, None, None);
    if let Some(valid) = &valid {
        dev = Some(Development::from(development_loss(&model, valid, config)?));
        let tags = tags(sets.folder, sets.valid, test)?;
        found = gates(&model, (valid, codes), tags.as_ref(), config)?;
        oracle = ask_oracle(&model, valid, test, observer)?;
    }
    // Last, because it changes the model.
    let uniform_gates = if test.uniform_gates && found.is_some() {
        let again = make_uniform(&mut model, valid.as_ref(), config)?;
        if let (Some(dev), Some(again)) = (&mut dev, again) {
            dev.uniform_loss = Some(again.loss);
        }
        let (tokens, lines) = scorer.translate(&model)?;
        let scores = scorer.score(&tokens, lines.as_deref())?;
        Some(UniformGates {
            exact_match: scores.exact_match,
            bleu: scores.plain.map(|score| score.score),
            bleu_tokenised: scores.tokenised.score,
        })
    } else {
        None
    };
    let translated = Translated {
        split: test.split.clone(),
        bleu: scores.plain.as_ref().map(|score| score.score),
        signature: scores.plain.as_ref().map(|score| format!("BLEU|{}", score.signature)),
        bleu_tokenised: scores.tokenised.score,
        compound_split: test.compound_split,
        exact_match: scores.exact_match,
        by_tag,
        one_expert,
        uniform_gates,
    };
    Ok(TranslationScores { dev, gates: found, oracle, translated })
}

/// A test set, and how it is scored.
struct Scorer<'a> {
    data: &'a ParallelDataset,
    codes: Option<&'a Segmentation>,
    test: &'a Translation,
    references: &'a References,
}

impl Scorer<'_> {
    /// Translates the set: whitespace tokens, and plain text where there are references for it.
    fn translate(&self, model: &Translator) -> Result<(Vec<String>, Option<Vec<String>>)> {
        let Self { data, test, .. } = self;
        let options = SearchOptions { beam: test.beam, lenpen: test.lenpen, ..SearchOptions::default() };
        let side = (&*data.tgt_vocab, self.codes);
        let tokens = best_lines(model, &data.src, side, &options, &ExpertMode::Mix)?;
        if self.references.plain.is_none() {
            return Ok((tokens, None));
        }
        let language = test.language.parse::<Lang>();
        let language = language.map_err(|error| PlanFault::Language(error.to_string()))?;
        let detokenizer = Detokenizer::new(language, Escapes::Entities);
        let lines = tokens.iter().map(|line| detokenizer.detokenize(line)).collect();
        Ok((tokens, Some(lines)))
    }

    /// Scores of all lines.
    fn score(&self, tokens: &[String], lines: Option<&[String]>) -> Result<Scores> {
        let all: Vec<usize> = (0..tokens.len()).collect();
        self.score_of(&all, tokens, lines)
    }

    /// Scores of some of the lines.
    fn score_of(&self, which: &[usize], tokens: &[String], lines: Option<&[String]>) -> Result<Scores> {
        let configs = BleuConfigs::of(self.test);
        let References { tokens: references, plain } = self.references;
        let plain = lines.zip(plain.as_ref());
        let plain = plain.map(|(lines, references)| bleu(configs.plain, which, lines, references));
        let pairs = which.iter().map(|&i| (&tokens[i], &references[i]));
        Ok(Scores {
            plain: plain.transpose()?,
            tokenised: bleu(configs.tokens, which, tokens, references)?,
            exact_match: self.test.exact_match.then(|| 100.0 * exact_match(pairs)),
        })
    }

    /// The score by which systems are compared, for the lines with each tag.
    fn by_tag(
        &self,
        tags: &Tags,
        tokens: &[String],
        lines: Option<&[String]>,
    ) -> Result<BTreeMap<String, f64>> {
        let mut scores = BTreeMap::new();
        for (tag, name) in tags.names.iter().enumerate() {
            let which: Vec<usize> = (0..tokens.len()).filter(|&i| tags.of_sentence[i] == tag).collect();
            let found = self.score_of(&which, tokens, lines)?;
            let bleu = || found.plain.unwrap_or(found.tokenised).score;
            scores.insert(name.clone(), found.exact_match.unwrap_or_else(bleu));
        }
        Ok(scores)
    }
}

/// Scores of translations.
struct Scores {
    plain: Option<BleuScore>,
    tokenised: BleuScore,
    exact_match: Option<f64>,
}

fn bleu(config: BleuConfig, which: &[usize], lines: &[String], references: &[String]) -> Result<BleuScore> {
    let mut stats = BleuStats::new(config);
    for &i in which {
        stats.add(&lines[i], &[&references[i]])?;
    }
    Ok(stats.score())
}

fn with_one_expert(
    model: &Translator,
    data: &ParallelDataset,
    codes: Option<&Segmentation>,
    test: &Translation,
    observer: &mut dyn Observer,
) -> Result<OneExpert> {
    let random = one_expert::Random { draws: test.draws, seed: 1 };
    let (place, times) = match test.encoder_only {
        true => (one_expert::Where::AlsoEncoderOnly, 2),
        false => (one_expert::Where::Everywhere, 1),
    };
    // The mixture is translated, too.
    let total = 1 + times * random.evaluations(model.config().mixture.system.is_gated()) as u64;
    let (stage, mut done) = ("Translating with one expert", 0);
    observer.event(&Event::Progress { stage, done, total });
    let found = one_expert::evaluate(model, data, codes, (test.beam, random, place), || {
        done += 1;
        observer.event(&Event::Progress { stage, done, total });
    })?;
    let one_expert::OneExpert { mixture, argmax, random, encoder, .. } = found;
    Ok(OneExpert { mixture, argmax, random, encoder })
}
