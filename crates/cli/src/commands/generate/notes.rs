//! Counts of what was cut, unknown or repaired in the input, for one report at the end.

use mae_data::LineReader;
use mae_data::lines::Tally;
use mae_data::text_record::TEXT;
use mae_translate::{Models, TextForm, TokenCounts};

/// Counts of all sides of an input.
pub struct Notes {
    /// Repaired lines and other remarks.
    others: Vec<String>,
    /// Lines to translate.
    pub source: SideNotes,
    /// References.
    pub target: SideNotes,
    /// Forced prefixes.
    pub prefix: SideNotes,
}

/// Prints what plain text goes through, if anything.
pub fn tell_rules(models: &Models, form: TextForm) {
    let (rules, languages) = (&models.record().rules, &models.record().languages);
    if let (TextForm::Lines, Some(_), Some([source, target])) = (form, models.tools(), languages) {
        let back = if rules.tokenize.is_some() { ", and translations are detokenised" } else { "" };
        eprintln!(
            "mae: text is taken as plain {source} and goes through the rules of the model's {TEXT}: {rules}{back} ({target}); \
             --tokenized leaves this out"
        );
    }
}

/// Counts of one side.
pub struct SideNotes {
    what: &'static str,
    limit: usize,
    cut: Tally,
    with_unknown: Tally,
    tokens: usize,
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
            tokens: 0,
            unknown: 0,
        };
        Self { others: Vec::new(), source: side("source"), target: side("target"), prefix: side("prefix") }
    }

    /// Adds a remark.
    pub fn add(&mut self, what: String) {
        self.others.push(what);
    }

    /// Adds what a reader repaired.
    pub fn repaired(&mut self, reader: &LineReader) {
        if !reader.issues().is_empty() {
            self.others.push(format!("{}: {}", reader.path().display(), reader.issues()));
        }
    }

    /// Prints everything on standard error.
    pub fn report(&self) {
        let sides = [&self.source, &self.target, &self.prefix];
        let lines = self.others.iter().cloned().chain(sides.into_iter().flat_map(SideNotes::lines));
        lines.for_each(|line| eprintln!("mae: {line}"));
    }
}

impl SideNotes {
    /// Adds the counts of sentences, the first of which has the number `first`.
    pub fn count(&mut self, counts: &[TokenCounts], first: usize) {
        for (i, counts) in counts.iter().enumerate() {
            let line = (first + i) as u64 + 1;
            self.tokens += counts.tokens;
            if counts.unknown > 0 {
                self.unknown += counts.unknown;
                self.with_unknown.add(line);
            }
            if counts.cut > 0 {
                self.cut.add(line);
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let Self { what, limit, cut, with_unknown, tokens, unknown } = self;
        let mut lines = Vec::new();
        if cut.count > 0 {
            lines.push(format!("{what} lines cut to the {limit} tokens that the model can take: {cut}"));
        }
        if *unknown > 0 {
            let share = 100.0 * *unknown as f64 / *tokens as f64;
            let digits = if share < 0.1 { 3 } else { 1 };
            lines.push(format!(
                "{unknown} of {tokens} {what} tokens ({share:.digits$} %) are not in the dictionary and count as <unk>; \
                 lines concerned: {with_unknown}"
            ));
        }
        lines
    }
}
