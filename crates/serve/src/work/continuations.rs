//! Texts that a language model continues, token by token. Those that begin together share their steps; newcomers
//! begin at the next step, as another group.

use std::sync::Arc;

use mae::{Beginning, LanguageModel, PromptCounts, Writing, WrittenToken};

use super::engine::{Engine, Happened, Load, Stage, Ticket};

/// Texts in work at once.
const MOST_TEXTS: usize = 64;

/// Groups of texts in work at once: each is a pass of its own.
const MOST_GROUPS: usize = 8;

/// An engine of a language model.
pub struct Continuations {
    model: Arc<LanguageModel>,
    waiting: Vec<(Ticket, Beginning)>,
    groups: Vec<Group>,
}

struct Group {
    writing: Writing,
    /// By number of the text; `None` after its end.
    tickets: Vec<Option<Ticket>>,
}

/// An event of a text.
#[derive(Debug)]
pub enum Progress {
    /// The prompt has been read.
    Prompt(PromptCounts),
    /// A token was written.
    Token(WrittenToken),
    /// It cannot go on, for this reason.
    Failed(String),
}

impl Continuations {
    /// Creates an engine for a model.
    pub fn new(model: Arc<LanguageModel>) -> Self {
        Self { model, waiting: Vec::new(), groups: Vec::new() }
    }

    /// Begins what waits, as one group.
    fn begin(&mut self, happened: &mut Vec<Happened<Progress>>) {
        let (tickets, texts): (Vec<Ticket>, Vec<Beginning>) = self.waiting.drain(..).unzip();
        let lengths: Vec<usize> = texts.iter().map(|text| text.options.max_len).collect();
        let writing = match self.model.begin(texts) {
            Ok(writing) => writing,
            Err(error) => return happened.extend(tickets.into_iter().map(|ticket| failed(ticket, &error))),
        };
        let begun = |(index, ticket): (usize, Ticket)| {
            // A text of no new tokens is finished with its prompt.
            let stage = if lengths[index] == 0 { Stage::Finished } else { Stage::Running };
            happened.push(Happened { ticket, event: Progress::Prompt(writing.counts(index)), stage });
            (stage == Stage::Running).then_some(ticket)
        };
        let tickets = tickets.into_iter().enumerate().map(begun).collect();
        self.groups.push(Group { writing, tickets });
    }
}

fn failed(ticket: Ticket, error: &mae::Error) -> Happened<Progress> {
    Happened { ticket, event: Progress::Failed(error.to_string()), stage: Stage::Finished }
}

impl Group {
    fn step(&mut self, model: &LanguageModel) -> Vec<Happened<Progress>> {
        match self.writing.step(model) {
            Ok(written) => {
                let event = |token: WrittenToken| {
                    let stage = if token.end.is_some() { Stage::Finished } else { Stage::Running };
                    let own = &mut self.tickets[token.index];
                    let ticket = if stage == Stage::Finished { own.take() } else { *own };
                    Some(Happened { ticket: ticket?, event: Progress::Token(token), stage })
                };
                written.into_iter().filter_map(event).collect()
            }
            Err(error) => {
                let tickets = self.tickets.iter_mut().filter_map(Option::take);
                tickets.map(|ticket| failed(ticket, &error)).collect()
            }
        }
    }

    fn is_done(&self) -> bool {
        self.writing.is_done() || self.tickets.iter().all(Option::is_none)
    }

    fn texts(&self) -> usize {
        self.tickets.iter().flatten().count()
    }
}

impl Engine for Continuations {
    type Job = Beginning;
    type Event = Progress;

    fn has_room(&self, _: &Beginning) -> bool {
        self.load().jobs < MOST_TEXTS && self.groups.len() < MOST_GROUPS
    }

    fn submit(&mut self, ticket: Ticket, job: Beginning) {
        self.waiting.push((ticket, job));
    }

    fn step(&mut self) -> Vec<Happened<Progress>> {
        let mut happened = Vec::new();
        if !self.waiting.is_empty() {
            self.begin(&mut happened);
        }
        for group in &mut self.groups {
            happened.extend(group.step(&self.model));
        }
        self.groups.retain(|group| !group.is_done());
        happened
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.waiting.retain(|(own, _)| *own != ticket);
        for group in &mut self.groups {
            if let Some(index) = group.tickets.iter().position(|own| *own == Some(ticket)) {
                group.tickets[index] = None;
                group.writing.remove(&self.model, index);
            }
        }
        self.groups.retain(|group| !group.is_done());
    }

    fn load(&self) -> Load {
        let jobs = self.waiting.len() + self.groups.iter().map(Group::texts).sum::<usize>();
        Load { jobs, tokens: jobs }
    }
}
