//! Codes from the training split.

use super::stages::Stages;
use super::{Pieces, Progress};
use crate::bpe::{Codes, LearnOptions, WordCounts, learn};
use crate::error::Result;
use crate::lines::{BadUtf8, LineReader};
use crate::preprocess;
use crate::segmentation::Segmentation;

impl Stages<'_, '_> {
    /// Learns the merges that the options ask for from `tmp/train.*` and writes `code`, or `code.de` and `code.en`.
    pub(super) fn learn_merges(&mut self) -> Result<Option<Segmentation>> {
        let (src, tgt) = (self.options.source_lang.clone(), self.options.target_lang.clone());
        Ok(match self.options.pieces {
            Pieces::None | Pieces::Tokenizer(_) | Pieces::SentencePiece(_) => None,
            Pieces::Joint(how) => Some(Segmentation::Joint(self.learn(&[&src, &tgt], how, "code")?)),
            Pieces::Separate(how) => {
                let mut learn = |lang: &str| self.learn(&[lang], how, &format!("code.{lang}"));
                Some(Segmentation::Separate { src: learn(&src)?, tgt: learn(&tgt)? })
            }
        })
    }

    fn learn(&mut self, langs: &[&str], how: LearnOptions, name: &str) -> Result<Codes> {
        let mut counts = WordCounts::default();
        for lang in langs {
            let path = self.options.out.join(format!("tmp/train.{lang}"));
            (self.progress)(Progress::Preprocess(preprocess::Progress::Counting { path: &path }));
            counts.add_file(&mut LineReader::open(&path, BadUtf8::Error)?)?;
        }
        let total = how.merges;
        let codes = learn(&counts, how, |done| {
            (self.progress)(Progress::Preprocess(preprocess::Progress::Learning { done, total }));
        })?;
        codes.save(self.options.out.join(name))?;
        Ok(codes)
    }
}
