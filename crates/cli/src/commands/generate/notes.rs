//! What was cut, unknown or repaired in the input, for one report at the end.

use mae_data::lines::Tally;
use mae_data::pairs::cut_to;
use mae_data::{LineReader, MemoryDataset, UNK};

/// What the sides of an input met.
pub struct Notes {
    /// What was repaired, and what else there is to tell.
    others: Vec<String>,
    /// Of the lines to translate.
    pub source: SideNotes,
    /// Of the references.
    pub target: SideNotes,
    /// Of forced prefixes.
    pub prefix: SideNotes,
}

/// What one side met.
pub struct SideNotes {
    what: &'static str,
    limit: usize,
    cut: Tally,
    with_unknown: Tally,
    words: usize,
    unknown: usize,
}

impl Notes {
    /// Nothing yet, for sentences of up to `limit` tokens.
    pub fn new(limit: usize) -> Self {
        let side = |what| SideNotes {
            what,
            limit,
            cut: Tally::default(),
            with_unknown: Tally::default(),
            words: 0,
            unknown: 0,
        };
        Self { others: Vec::new(), source: side("source"), target: side("target"), prefix: side("prefix") }
    }

    /// Adds something else to tell.
    pub fn add(&mut self, what: String) {
        self.others.push(what);
    }

    /// Notes what a reader repaired.
    pub fn repaired(&mut self, reader: &LineReader) {
        if !reader.issues().is_empty() {
            self.others.push(format!("{}: {}", reader.path().display(), reader.issues()));
        }
    }

    /// Says it on standard error.
    pub fn report(&self) {
        let sides = [&self.source, &self.target, &self.prefix];
        let lines = self.others.iter().cloned().chain(sides.into_iter().flat_map(SideNotes::lines));
        lines.for_each(|line| eprintln!("mae: {line}"));
    }
}

impl SideNotes {
    /// Cuts sentences to the limit; counts those, and the words that are unknown. `first` is the number of the first.
    pub fn fit(&mut self, side: MemoryDataset, first: usize) -> MemoryDataset {
        let mut fitting = MemoryDataset::default();
        for i in 0..side.len() {
            let (ids, line) = (side.get(i), (first + i) as u64 + 1);
            self.words += ids.len().saturating_sub(1);
            let unknown = ids.iter().filter(|&&id| id == UNK).count();
            if unknown > 0 {
                self.unknown += unknown;
                self.with_unknown.add(line);
            }
            if ids.len() > self.limit {
                self.cut.add(line);
            }
            fitting.push(&cut_to(ids, self.limit));
        }
        fitting
    }

    fn lines(&self) -> Vec<String> {
        let Self { what, limit, cut, with_unknown, words, unknown } = self;
        let mut lines = Vec::new();
        if cut.count > 0 {
            lines.push(format!("{what} lines cut to the {limit} tokens that the model can take: {cut}"));
        }
        if *unknown > 0 {
            let share = 100.0 * *unknown as f64 / *words as f64;
            let digits = if share < 0.1 { 3 } else { 1 };
            lines.push(format!(
                "{unknown} of {words} {what} tokens ({share:.digits$} %) are not in the dictionary and count as <unk>; \
                 lines concerned: {with_unknown}"
            ));
        }
        lines
    }
}
