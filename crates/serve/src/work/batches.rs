//! Translation in batches: what waits is taken, sentences with equal options are searched together to the end.

use std::sync::Arc;

use mae::{TranslateOptions, Translation, Translator};

use super::engine::{Engine, Happened, Load, Stage, Ticket};

/// A sentence to translate.
#[derive(Clone, Debug)]
pub struct Sentence {
    /// The text.
    pub text: String,
    /// Options; sentences with equal ones are translated together.
    pub options: Arc<TranslateOptions>,
}

impl Sentence {
    /// Tokens that it probably has: codes cut words into a few pieces.
    pub fn estimated_tokens(&self) -> usize {
        self.text.len() / 3 + 2
    }
}

/// A translation, or the reason why there is none; others may have the same.
pub type Found = Result<Translation, Arc<mae::Error>>;

/// Limits of the sentences that are in work at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Sentences.
    pub sentences: usize,
    /// Source tokens.
    pub tokens: usize,
}

/// An engine that translates a batch in each step.
pub struct Batches {
    translator: Arc<Translator>,
    budget: Budget,
    waiting: Vec<(Ticket, Sentence)>,
    tokens: usize,
}

impl Batches {
    /// Creates an engine for a model.
    pub fn new(translator: Arc<Translator>, budget: Budget) -> Self {
        Self { translator, budget, waiting: Vec::new(), tokens: 0 }
    }

    /// Translates sentences with equal options. A fault of one sentence does not spoil the others.
    fn translate(&self, sentences: &[Sentence]) -> Vec<Found> {
        let Some(first) = sentences.first() else { return Vec::new() };
        let lines: Vec<&str> = sentences.iter().map(|sentence| sentence.text.as_str()).collect();
        match self.translator.translate(&lines, &first.options) {
            Ok(found) => found.into_iter().map(Ok).collect(),
            Err(error) if lines.len() == 1 => vec![Err(Arc::new(error))],
            Err(_) => {
                let alone = |line| {
                    let found = self.translator.translate(&[line], &first.options);
                    found.map(|mut found| found.remove(0)).map_err(Arc::new)
                };
                lines.into_iter().map(alone).collect()
            }
        }
    }
}

impl Engine for Batches {
    type Job = Sentence;
    type Event = Found;

    fn has_room(&self, job: &Sentence) -> bool {
        let fits = self.tokens + job.estimated_tokens() <= self.budget.tokens;
        self.waiting.is_empty() || fits && self.waiting.len() < self.budget.sentences
    }

    fn submit(&mut self, ticket: Ticket, job: Sentence) {
        self.tokens += job.estimated_tokens();
        self.waiting.push((ticket, job));
    }

    fn step(&mut self) -> Vec<Happened<Self::Event>> {
        let Some((_, first)) = self.waiting.first() else { return Vec::new() };
        let options = first.options.clone();
        let together =
            |sentence: &Sentence| Arc::ptr_eq(&sentence.options, &options) || sentence.options == options;
        let (now, later) = std::mem::take(&mut self.waiting).into_iter().partition(|(_, own)| together(own));
        self.waiting = later;
        let (tickets, sentences): (Vec<Ticket>, Vec<Sentence>) = now.into_iter().unzip();
        self.tokens = self.waiting.iter().map(|(_, sentence)| sentence.estimated_tokens()).sum();
        let finished = |(ticket, event)| Happened { ticket, event, stage: Stage::Finished };
        tickets.into_iter().zip(self.translate(&sentences)).map(finished).collect()
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.waiting.retain(|(own, _)| *own != ticket);
        self.tokens = self.waiting.iter().map(|(_, sentence)| sentence.estimated_tokens()).sum();
    }

    fn load(&self) -> Load {
        Load { jobs: self.waiting.len(), tokens: self.tokens }
    }
}
