//! Continuations gathered to one answer, or sent token by token as server-sent events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use mae::Beginning;
use serde_json::{Value, json};

use super::choice::{Choice, Tokens};
use super::openai::{Completion, CompletionRequest, Usage};
use super::refusal::Refusal;
use super::reply;
use crate::app::Answered;
use crate::metrics::WorkMetrics;
use crate::registry::WritingModel;
use crate::work::continuations::Progress;
use crate::work::worker::Answers;

/// The continuations of a request.
pub(super) struct Choices {
    id: String,
    created: u64,
    model: String,
    choices: Vec<Choice>,
    /// Continuations of each prompt.
    count: usize,
    usage: Usage,
    include_usage: bool,
    metrics: Arc<WorkMetrics>,
}

impl Choices {
    pub(super) fn new(
        asked: &CompletionRequest,
        prompts: &[String],
        count: usize,
        model: &WritingModel,
    ) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stops = asked.stop.clone().map(super::describe::OneOrMany::into_vec).unwrap_or_default();
        let stops: Vec<String> = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        let choice = |prompt: &String| Choice {
            echo: (asked.echo == Some(true)).then(|| prompt.clone()),
            stops: stops.clone(),
            tokens: asked.logprobs.map(|_| Tokens::default()),
            ..Choice::default()
        };
        Self {
            id: format!("cmpl-{:x}", now.as_nanos()),
            created: now.as_secs(),
            model: model.name.clone(),
            choices: prompts.iter().flat_map(|prompt| (0..count).map(move |_| choice(prompt))).collect(),
            count,
            usage: Usage { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
            include_usage: asked
                .stream_options
                .as_ref()
                .is_some_and(|options| options.include_usage == Some(true)),
            metrics: model.metrics.clone(),
        }
    }

    /// Takes an event; returns what is new of its text.
    fn take(&mut self, index: usize, event: Progress) -> Answered<Option<String>> {
        let choice = &mut self.choices[index];
        match event {
            Progress::Failed(message) => Err(Refusal::failed(message)),
            Progress::Prompt(counts) => {
                if index.is_multiple_of(self.count) {
                    self.usage.prompt_tokens += counts.read;
                    self.usage.total_tokens += counts.read;
                }
                self.metrics.source_tokens.fetch_add(counts.read as u64, Ordering::Relaxed);
                self.metrics.cut.fetch_add(u64::from(counts.cut > 0), Ordering::Relaxed);
                Ok(choice.echo.clone())
            }
            Progress::Token(_) if choice.finish.is_some() => Ok(None),
            Progress::Token(token) => {
                self.usage.completion_tokens += 1;
                self.usage.total_tokens += 1;
                self.metrics.target_tokens.fetch_add(1, Ordering::Relaxed);
                Ok(choice.write(token))
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.choices.iter().all(|choice| choice.finish.is_some())
    }

    fn completion(&self, choices: Vec<Value>, usage: Option<Usage>) -> Completion {
        Completion {
            id: self.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.model.clone(),
            choices,
            usage,
        }
    }

    /// The whole answer.
    pub(super) async fn gather(mut self, mut answers: Answers<Beginning, Progress>) -> Answered<Completion> {
        while !self.is_finished() {
            match answers.next().await {
                Some((index, event)) => drop(self.take(index, event)?),
                // Continuations of no tokens end without one.
                None => break,
            }
        }
        let whole = |(index, choice): (usize, &Choice)| {
            let text = choice.echo.clone().unwrap_or_default() + &choice.text;
            json!({
                "index": index,
                "text": text,
                "logprobs": choice.tokens.as_ref().map(|tokens| tokens.json(0)),
                "finish_reason": choice.finish.unwrap_or("length"),
            })
        };
        let choices = self.choices.iter().enumerate().map(whole).collect();
        Ok(self.completion(choices, Some(self.usage.clone())))
    }

    /// An event of the stream: what is new of a choice.
    fn chunk(&self, index: usize, text: String, tokens_before: usize) -> Completion {
        let choice = &self.choices[index];
        let tokens = choice.tokens.as_ref().map(|tokens| tokens.json(tokens_before));
        let value = json!({"index": index, "text": text, "logprobs": tokens, "finish_reason": choice.finish});
        self.completion(vec![value], None)
    }
}

/// An answer whose body is written as the tokens come. Its work is dropped with it.
pub(super) fn stream(choices: Choices, answers: Answers<Beginning, Progress>) -> Response {
    let sent = vec![0; choices.choices.len()];
    let events = Events { choices, answers, sent, state: State::Running };
    reply::typed(StatusCode::OK, "text/event-stream", Body::from_stream(events))
}

struct Events {
    choices: Choices,
    answers: Answers<Beginning, Progress>,
    /// Tokens of each choice that were sent with their log-probabilities.
    sent: Vec<usize>,
    state: State,
}

enum State {
    Running,
    /// All tokens are written.
    Usage,
    Done,
    Ended,
}

fn data(value: &impl serde::Serialize) -> Bytes {
    let text = serde_json::to_string(value).unwrap_or_default();
    format!("data: {text}\n\n").into()
}

impl Events {
    fn event(&mut self, index: usize, event: Progress) -> Option<Bytes> {
        match self.choices.take(index, event) {
            Err(refusal) => {
                self.state = State::Done;
                let error =
                    json!({"message": refusal.message, "type": "server_error", "param": null, "code": 500});
                Some(data(&json!({ "error": error })))
            }
            Ok(text) => {
                let chunk = text.map(|text| data(&self.choices.chunk(index, text, self.sent[index])));
                if chunk.is_some() {
                    self.sent[index] =
                        self.choices.choices[index].tokens.as_ref().map_or(0, |t| t.pieces.len());
                }
                if self.choices.is_finished() {
                    self.state = State::Usage;
                }
                chunk
            }
        }
    }
}

impl futures_core::Stream for Events {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let bytes = match self.state {
                State::Running => match self.answers.poll_next(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some((index, event))) => self.event(index, event),
                    Poll::Ready(None) => {
                        self.state = State::Usage;
                        None
                    }
                },
                State::Usage => {
                    self.state = State::Done;
                    let usage = self.choices.usage.clone();
                    self.choices
                        .include_usage
                        .then(|| data(&self.choices.completion(Vec::new(), Some(usage))))
                }
                State::Done => {
                    self.state = State::Ended;
                    Some("data: [DONE]\n\n".into())
                }
                State::Ended => return Poll::Ready(None),
            };
            if let Some(bytes) = bytes {
                return Poll::Ready(Some(Ok(bytes)));
            }
        }
    }
}
