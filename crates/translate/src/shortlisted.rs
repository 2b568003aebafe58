//! Steps with shortlists: logits of the types that some sentence may have, and the choice of each sentence among its own.

use std::sync::Arc;

use mae_data::{EOS, PAD, UNK};
use mae_engine::ops::chances::Chances;
use mae_engine::ops::decode::{Candidate, Symbols, continuations, log_probs, mean_log_probs};
use mae_engine::{Device, Tensor};
use rayon::prelude::*;

use crate::choice;
use crate::sentence::Sentence;

/// The types whose logits a step computes where some sentence has a shortlist: `None` for all.
pub(crate) struct Columns(Option<Vec<u32>>);

impl Columns {
    /// Those of these sentences; `None` if none of them has a list.
    pub(crate) fn of(sentences: &[Sentence]) -> Option<Self> {
        if sentences.iter().all(|sentence| sentence.types.is_none()) {
            return None;
        }
        let mut all = Vec::new();
        for sentence in sentences {
            match &sentence.types {
                Some(types) => all.extend_from_slice(types),
                None => return Some(Self(None)),
            }
        }
        all.sort_unstable();
        all.dedup();
        Some(Self(Some(all)))
    }

    /// The types, in order; `None` for all.
    pub(crate) fn types(&self) -> Option<&[u32]> {
        self.0.as_deref()
    }

    /// The logits of each sentence's own types, side by side: so its probabilities do not depend on other sentences.
    pub(crate) fn logits(&self, sentences: &[Sentence], logits: &Tensor) -> Vec<Listed> {
        let starts = sentences.iter().scan(0, |next, sentence| {
            let first = *next;
            *next += sentence.live.len();
            Some((sentence, first))
        });
        let starts: Vec<(&Sentence, usize)> = starts.collect();
        let (values, width) = (logits.to_host(), logits.cols());
        let listed = |&(sentence, first): &(&Sentence, usize)| {
            let rows = &values[first * width..(first + sentence.live.len()) * width];
            Listed { types: sentence.types.clone(), first, logits: self.of_types(sentence, rows, width) }
        };
        starts.par_iter().map(listed).collect()
    }

    /// The columns of a sentence's own types; `rows` have `width` values each.
    fn of_types(&self, sentence: &Sentence, rows: &[f32], width: usize) -> Tensor {
        let device = Device::cpu();
        match &sentence.types {
            None => Tensor::from_host(&device, [rows.len() / width, width], rows),
            Some(types) => {
                let column = |id: &u32| match &self.0 {
                    Some(all) => all.binary_search(id).expect("columns are of all lists"),
                    None => *id as usize,
                };
                let columns: Vec<usize> = types.iter().map(column).collect();
                let own = |row: &[f32]| columns.iter().map(|&column| row[column]).collect::<Vec<f32>>();
                let values: Vec<f32> = rows.chunks_exact(width).flat_map(own).collect();
                Tensor::from_host(&device, [rows.len() / width, types.len()], &values)
            }
        }
    }
}

/// The logits of a sentence's own types, by one model.
pub(crate) struct Listed {
    /// `None`: all.
    types: Option<Arc<[u32]>>,
    /// Row of its first hypothesis in the lane.
    first: usize,
    /// `[hypotheses, types]`.
    logits: Tensor,
}

impl Listed {
    /// The continuations of each sentence, by what each model says about it; `types` is the size of the dictionary.
    pub(crate) fn choose(
        sentences: &[Sentence],
        by_model: &[Vec<Self>],
        types: usize,
    ) -> Vec<Vec<Candidate>> {
        let of = |(i, sentence): (usize, &Sentence)| {
            let each: Vec<&Self> = by_model.iter().map(|model| &model[i]).collect();
            match each[..] {
                [one] if sentence.is_plain() => one.best(sentence),
                _ => Self::chosen(sentence, &each, types),
            }
        };
        sentences.par_iter().enumerate().map(of).collect()
    }

    /// Column of a type; one beyond all if the list does not have it.
    fn column(&self, id: u32) -> u32 {
        match &self.types {
            Some(types) => types.binary_search(&id).map_or(u32::MAX, |column| column as u32),
            None => id,
        }
    }

    /// The type of a column.
    fn id(&self, column: usize) -> u32 {
        self.types.as_ref().map_or(column as u32, |types| types[column])
    }

    /// The best continuations.
    fn best(&self, sentence: &Sentence) -> Vec<Candidate> {
        let [pad, end, unknown] = [PAD, EOS, UNK].map(|id| self.column(id));
        let live: Vec<_> = sentence.rows().collect();
        let (group, count) = (0..live.len(), 2 * sentence.options.beam);
        let found = continuations(&self.logits, &live, &[group], count, Symbols { pad, end, unknown });
        let mut found = found.and_then(|found| found.ranked()).expect("a CPU ranks without errors");
        let mut found = found.pop().unwrap_or_default();
        for candidate in &mut found {
            candidate.token = self.id(candidate.token as usize);
            candidate.row += self.first as u32;
        }
        found
    }

    /// What the host chooses, from rows of all types.
    fn chosen(sentence: &Sentence, each: &[&Self], types: usize) -> Vec<Candidate> {
        let (one, rows) = (each[0], sentence.live.len());
        let said =
            each.iter().map(|one| log_probs(&one.logits, rows, sentence.options.temperature)).collect();
        let mut all = vec![f32::NEG_INFINITY; rows * types];
        for (all, own) in
            all.chunks_exact_mut(types).zip(mean_log_probs(said).chunks_exact(one.logits.cols()))
        {
            own.iter().enumerate().for_each(|(column, value)| all[one.id(column) as usize] = *value);
        }
        let asked = choice::ask(Chances::from_host(all, types), &[(sentence, one.first)]);
        let found = asked.and_then(|asked| asked.collect(&[sentence])).expect("a CPU chooses without errors");
        found.into_iter().next().unwrap_or_default()
    }
}
