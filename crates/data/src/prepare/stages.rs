//! Texts through the rules into splits, and splits into pieces: chunk by chunk, on all threads, in order.

use std::path::PathBuf;

use rayon::prelude::*;

use super::markup::Pairs;
use super::report::PrepareReport;
use super::{CleanWhen, Corpus, HoldOut, PrepareOptions, Progress, Text, TextRules};
use crate::error::{Error, Result};
use crate::files::TextFile;
use crate::lines::{BadUtf8, ParallelLines};
use crate::moses::{CleanPair, Cleaner, Tallies};
use crate::options::OptionFault;
use crate::segmentation::Segmentation;
use crate::text_rules::LineRules;

/// Pairs worked on at a time.
const CHUNK: usize = 1 << 13;

pub(super) struct Stages<'a, 'p> {
    pub(super) options: &'a PrepareOptions,
    pub(super) progress: &'p mut dyn FnMut(Progress<'_>),
    splits: Vec<&'static str>,
    /// Validation pairs come out of the training text, and are cleaned with it.
    valid_held_out: bool,
    report: PrepareReport,
}

/// Two files of one split.
struct Out([TextFile; 2]);

impl Out {
    fn create(prefix: PathBuf, options: &PrepareOptions) -> Result<Self> {
        let side = |lang: &str| TextFile::create(&PathBuf::from(format!("{}.{lang}", prefix.display())));
        Ok(Self([side(&options.source_lang)?, side(&options.target_lang)?]))
    }

    fn pair(&mut self, src: &str, tgt: &str) -> Result<()> {
        self.0[0].line(src)?;
        self.0[1].line(tgt)
    }

    fn finish(self) -> Result<()> {
        self.0.into_iter().try_for_each(TextFile::finish)
    }
}

impl<'a, 'p> Stages<'a, 'p> {
    pub(super) fn new(
        options: &'a PrepareOptions,
        progress: &'p mut dyn FnMut(Progress<'_>),
    ) -> Result<Self> {
        // Rules are refused before any work is done.
        for rules in [&options.train_rules, &options.eval_rules] {
            rules.of(&options.source_lang)?;
            rules.of(&options.target_lang)?;
        }
        let report = PrepareReport::default();
        Ok(Self { options, progress, splits: vec!["train"], valid_held_out: false, report })
    }

    /// Splits that were written, and the report.
    pub(super) fn done(self) -> (Vec<&'static str>, PrepareReport) {
        (self.splits, self.report)
    }

    fn tmp(&self, split: &str) -> PathBuf {
        self.options.out.join("tmp").join(split)
    }

    /// Writes `tmp/{train,valid,test}.*` and `test.raw.*`.
    pub(super) fn split(&mut self, corpus: &Corpus) -> Result<()> {
        let mut holding = Holding::new(self, corpus)?;
        let mut train = Out::create(self.tmp("train"), self.options)?;
        let mut valid = self.create_if(holding.valid_wanted() || !corpus.valid.is_empty(), "valid")?;
        let mut test = self.create_if(holding.test_wanted() || !corpus.test.is_empty(), "test")?;
        let mut raw = match &test {
            Some(_) => Some(Out::create(self.options.out.join("test.raw"), self.options)?),
            None => None,
        };
        self.valid_held_out = holding.valid_wanted();

        let mut cleaning = self.cleaning(CleanWhen::BeforePieces)?;
        let rules = &self.options.train_rules;
        for text in &corpus.train {
            self.each_pair(text, rules, "tokenising train", |pair, (src, tgt)| {
                holding.read += 1;
                let Some((src, tgt)) = cleaning.keep(src, tgt) else { return Ok(()) };
                match holding.next() {
                    Split::Train => train.pair(&src, &tgt),
                    Split::Valid => write(&mut valid, &src, &tgt),
                    Split::Test => {
                        write(&mut raw, &pair.0, &pair.1)?;
                        write(&mut test, &src, &tgt)
                    }
                }
            })?;
        }
        let rules = &self.options.eval_rules;
        for text in &corpus.valid {
            self.each_pair(text, rules, "tokenising valid", |_, (src, tgt)| write(&mut valid, &src, &tgt))?;
        }
        for text in &corpus.test {
            self.each_pair(text, rules, "tokenising test", |pair, (src, tgt)| {
                write(&mut raw, &pair.0, &pair.1)?;
                write(&mut test, &src, &tgt)
            })?;
        }
        if holding.kept == holding.valid + holding.test {
            let path = &corpus.train[0].src;
            return Err(Error::dataset(
                path,
                "no training pair is left: is the text empty, or cleaned away?",
            ));
        }
        train.finish()?;
        [valid, test, raw].into_iter().flatten().try_for_each(Out::finish)?;
        self.report.pairs = holding.read;
        (self.report.held_out_valid, self.report.held_out_test) = (holding.valid, holding.test);
        self.report.cleaned.extend(cleaning.report("train"));
        Ok(())
    }

    fn create_if(&mut self, wanted: bool, split: &'static str) -> Result<Option<Out>> {
        if !wanted {
            return Ok(None);
        }
        self.splits.push(split);
        Out::create(self.tmp(split), self.options).map(Some)
    }

    /// Calls `take` with each pair of a text, as it was and as the rules change it.
    fn each_pair(
        &mut self,
        text: &Text,
        rules: &TextRules,
        stage: &str,
        mut take: impl FnMut(&(String, String), (String, String)) -> Result<()>,
    ) -> Result<()> {
        let sides: [LineRules; 2] =
            [rules.of(&self.options.source_lang)?, rules.of(&self.options.target_lang)?];
        let mut pairs = Pairs::open(text, self.options.bad_utf8)?;
        let mut done = 0;
        loop {
            let chunk = pairs.next_chunk(CHUNK)?;
            if chunk.is_empty() {
                self.report.files.extend(pairs.issues());
                return Ok(());
            }
            let tokens: Vec<_> = chunk
                .par_iter()
                .with_min_len(32)
                .map(|(src, tgt)| Ok((sides[0].apply(src)?, sides[1].apply(tgt)?)))
                .collect::<Result<_>>()?;
            chunk.iter().zip(tokens).try_for_each(|(pair, tokens)| take(pair, tokens))?;
            done += chunk.len() as u64;
            (self.progress)(Progress::Pairs { stage, done });
        }
    }

    /// Cleaning at this moment, if it is the one that was chosen.
    fn cleaning(&self, when: CleanWhen) -> Result<Cleaning> {
        let cleaner = match &self.options.clean {
            Some((options, chosen)) if *chosen == when => Some(Cleaner::new(options.clone())?),
            _ => None,
        };
        Ok(Cleaning { cleaner, tallies: Tallies::default() })
    }

    /// Writes the splits as pieces.
    pub(super) fn segment(&mut self, segmentation: &Segmentation) -> Result<()> {
        let segmenters = segmentation.segmenters();
        let mut outs = Vec::new();
        for split in self.splits.clone() {
            let cleaned = split == "train" || (split == "valid" && self.valid_held_out);
            let when = if cleaned { CleanWhen::AfterPieces } else { CleanWhen::BeforePieces };
            let mut cleaning = self.cleaning(when)?;
            if !cleaned {
                cleaning.cleaner = None;
            }
            let path = |lang: &str| PathBuf::from(format!("{}.{lang}", self.tmp(split).display()));
            let (src, tgt) = (path(&self.options.source_lang), path(&self.options.target_lang));
            let mut lines = ParallelLines::open(src, tgt, BadUtf8::Error)?;
            let mut out = Out::create(self.options.out.join(split), self.options)?;
            let dropout = self.options.dropout.filter(|_| split == "train");
            let (stage, mut done) = (format!("segmenting {split}"), 0);
            loop {
                let chunk = lines.next_chunk(CHUNK)?;
                if chunk.is_empty() {
                    break;
                }
                let cut = |(i, (src, tgt)): (usize, &(String, String))| {
                    let number = done + i as u64;
                    (
                        segmenters[0].segment_training_line(src, dropout, (number, 0)),
                        segmenters[1].segment_training_line(tgt, dropout, (number, 1)),
                    )
                };
                let pieces: Vec<_> = chunk.par_iter().enumerate().with_min_len(32).map(cut).collect();
                for (src, tgt) in pieces {
                    if let Some((src, tgt)) = cleaning.keep(src, tgt) {
                        out.pair(&src, &tgt)?;
                    }
                }
                done += chunk.len() as u64;
                (self.progress)(Progress::Pairs { stage: &stage, done });
            }
            self.report.cleaned.extend(cleaning.report(split));
            outs.push(out);
        }
        outs.into_iter().try_for_each(Out::finish)
    }
}

fn write(out: &mut Option<Out>, src: &str, tgt: &str) -> Result<()> {
    out.as_mut().map_or(Ok(()), |out| out.pair(src, tgt))
}

/// Drops pairs of unusual lengths and counts them, if a cleaner is chosen.
struct Cleaning {
    cleaner: Option<Cleaner>,
    tallies: Tallies,
}

impl Cleaning {
    fn keep(&mut self, src: String, tgt: String) -> Option<(String, String)> {
        let Some(cleaner) = &mut self.cleaner else { return Some((src, tgt)) };
        self.tallies.pairs += 1;
        match cleaner.clean(&src, &tgt) {
            Ok(CleanPair { src, tgt }) => {
                self.tallies.kept += 1;
                Some((src, tgt))
            }
            Err(reason) => {
                self.tallies.add(reason, self.tallies.pairs);
                None
            }
        }
    }

    fn report(self, split: &str) -> Option<(String, Tallies)> {
        self.cleaner.map(|_| (split.to_owned(), self.tallies))
    }
}

enum Split {
    Train,
    Valid,
    Test,
}

/// Decides where pairs go.
struct Holding {
    how: HoldOut,
    /// Number of all pairs, where it is needed.
    total: u64,
    read: u64,
    kept: u64,
    valid: u64,
    test: u64,
}

impl Holding {
    fn new(stages: &mut Stages<'_, '_>, corpus: &Corpus) -> Result<Self> {
        let how = match stages.options.hold_out {
            // A split that is given is not held out.
            HoldOut::Sizes { valid, test } => HoldOut::Sizes {
                valid: if corpus.valid.is_empty() { valid } else { 0 },
                test: if corpus.test.is_empty() { test } else { 0 },
            },
            every => every,
        };
        let mut total = 0;
        if let HoldOut::Sizes { valid, test } = how
            && valid + test > 0
        {
            for text in &corpus.train {
                let mut pairs = Pairs::open(text, stages.options.bad_utf8)?;
                loop {
                    let chunk = pairs.next_chunk(CHUNK)?.len() as u64;
                    if chunk == 0 {
                        break;
                    }
                    total += chunk;
                    (stages.progress)(Progress::Pairs { stage: "counting pairs", done: total });
                }
            }
            if valid + test >= total {
                return Err(OptionFault::HoldOut { valid, test, total }.into());
            }
        }
        Ok(Self { how, total, read: 0, kept: 0, valid: 0, test: 0 })
    }

    fn valid_wanted(&self) -> bool {
        matches!(self.how, HoldOut::EveryNth(_) | HoldOut::Sizes { valid: 1.., .. })
    }

    fn test_wanted(&self) -> bool {
        matches!(self.how, HoldOut::Sizes { test: 1.., .. })
    }

    /// The split of the pair that was read last.
    fn next(&mut self) -> Split {
        self.kept += 1;
        // So many of `wanted` are due by now; a pair that was cleaned away is made up for by the next.
        let due = |wanted: u64| {
            (u128::from(self.read) * u128::from(wanted)).div_ceil(u128::from(self.total.max(1)))
        };
        match self.how {
            HoldOut::EveryNth(n) if self.kept.is_multiple_of(n) => self.valid += 1,
            HoldOut::Sizes { valid, .. } if u128::from(self.valid) < due(valid) => self.valid += 1,
            HoldOut::Sizes { test, .. } if u128::from(self.test) < due(test) => {
                self.test += 1;
                return Split::Test;
            }
            _ => return Split::Train,
        }
        Split::Valid
    }
}
