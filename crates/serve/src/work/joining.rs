//! Translation in a running batch: sentences join and leave at step boundaries, each with options of its own.

use std::collections::HashMap;
use std::sync::Arc;

use mae::{BatchLimits, LineId, Running, Translator};

use super::batches::{Budget, Found, Sentence};
use super::engine::{Engine, Happened, Load, Stage, Ticket};

/// An engine that takes every sentence one token further in each step.
pub struct Joining<'t> {
    translator: &'t Translator,
    budget: Budget,
    running: Running<'t>,
    lines: HashMap<LineId, (Ticket, usize)>,
    /// Sentences that were refused before their first step.
    refused: Vec<Happened<Found>>,
}

impl<'t> Joining<'t> {
    /// Creates an engine for a model.
    pub fn new(translator: &'t Translator, budget: Budget) -> Self {
        Self {
            translator,
            budget,
            running: begin(translator, budget),
            lines: HashMap::new(),
            refused: Vec::new(),
        }
    }

    fn tokens(&self) -> usize {
        self.lines.values().map(|(_, tokens)| tokens).sum()
    }
}

fn begin(translator: &Translator, budget: Budget) -> Running<'_> {
    translator.running(BatchLimits {
        max_tokens: u32::try_from(budget.tokens).unwrap_or(u32::MAX),
        max_sentences: Some(u32::try_from(budget.sentences).unwrap_or(u32::MAX)),
        ..BatchLimits::default()
    })
}

impl Engine for Joining<'_> {
    type Job = Sentence;
    type Event = Found;

    fn has_room(&self, job: &Sentence) -> bool {
        let load = self.load();
        load.jobs < self.budget.sentences && self.tokens() + job.estimated_tokens() <= self.budget.tokens
    }

    fn submit(&mut self, ticket: Ticket, job: Sentence) {
        match self.running.submit(&job.text, &job.options) {
            Ok(line) => drop(self.lines.insert(line, (ticket, job.estimated_tokens()))),
            Err(error) => {
                self.refused.push(Happened { ticket, event: Err(Arc::new(error)), stage: Stage::Finished })
            }
        }
    }

    fn step(&mut self) -> Vec<Happened<Self::Event>> {
        let mut happened = std::mem::take(&mut self.refused);
        match self.running.step() {
            Ok(finished) => happened.extend(finished.into_iter().filter_map(|(line, event)| {
                let (ticket, _) = self.lines.remove(&line)?;
                Some(Happened { ticket, event: event.map_err(Arc::new), stage: Stage::Finished })
            })),
            Err(error) => {
                // The batch is of no use any more.
                self.running = begin(self.translator, self.budget);
                let error = Arc::new(error);
                let failed = |ticket| Happened { ticket, event: Err(error.clone()), stage: Stage::Finished };
                happened.extend(self.lines.drain().map(|(_, (ticket, _))| failed(ticket)));
            }
        }
        happened
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.refused.retain(|happened| happened.ticket != ticket);
        let line = self.lines.iter().find(|(_, (own, _))| *own == ticket).map(|(line, _)| *line);
        if let Some(line) = line {
            self.lines.remove(&line);
            self.running.cancel(line);
        }
    }

    fn load(&self) -> Load {
        let jobs = self.lines.len() + self.refused.len();
        Load { jobs, tokens: self.tokens() }
    }
}
