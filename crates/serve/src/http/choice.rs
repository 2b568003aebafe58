//! A continuation as far as it is written, and what of it can be sent.

use std::collections::BTreeMap;

use mae::{End, WrittenToken};
use serde_json::{Value, json};

/// A continuation as far as it is written.
#[derive(Default)]
pub(super) struct Choice {
    pub(super) echo: Option<String>,
    pub(super) stops: Vec<String>,
    pub(super) text: String,
    /// Bytes of the text that will not change.
    pub(super) settled: usize,
    /// Log-probabilities, if they were asked for.
    pub(super) tokens: Option<Tokens>,
    pub(super) finish: Option<&'static str>,
}

#[derive(Default)]
pub(super) struct Tokens {
    pub(super) pieces: Vec<String>,
    pub(super) log_probs: Vec<f32>,
    pub(super) likeliest: Vec<BTreeMap<String, f32>>,
    pub(super) offsets: Vec<usize>,
}

impl Choice {
    /// Takes a token; returns what is new of the text that will not change.
    pub(super) fn write(&mut self, written: WrittenToken) -> Option<String> {
        let before = std::mem::replace(&mut self.text, written.text);
        if let Some(tokens) = &mut self.tokens {
            tokens.pieces.push(written.token.piece);
            tokens.log_probs.push(written.token.log_prob);
            let pairs = written.likeliest.into_iter().map(|token| (token.piece, token.log_prob));
            tokens.likeliest.push(pairs.collect());
            tokens.offsets.push(before.chars().count());
        }
        let stop = self.stops.iter().filter_map(|stop| self.text.find(stop)).min();
        self.finish = match (stop, written.end) {
            (Some(_), _) | (None, Some(End::Line)) => Some("stop"),
            (None, Some(End::Length)) => Some("length"),
            (None, None) => None,
        };
        if let Some(at) = stop {
            self.text.truncate(at);
        }
        let end = match self.finish {
            Some(_) => self.text.len(),
            None => self.settled_end(&before),
        };
        let new = self.text.get(self.settled..end).unwrap_or("").to_owned();
        self.settled = self.settled.max(end);
        (!new.is_empty() || self.finish.is_some()).then_some(new)
    }

    /// Bytes of a text that goes on which the next token will not change: those that it shares with the text before
    /// this token, less an end that may begin a stop.
    fn settled_end(&self, before: &str) -> usize {
        let shared = self.text.char_indices().zip(before.chars()).take_while(|((_, a), b)| a == b);
        let end = shared.last().map_or(0, |((at, c), _)| at + c.len_utf8());
        let begins_stop = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.text[*at..end]));
        let starts = self.text[..end].char_indices().map(|(at, _)| at);
        starts.filter(|at| *at >= self.settled).find(begins_stop).unwrap_or(end)
    }
}

impl Tokens {
    /// The tokens from number `first` on.
    pub(super) fn json(&self, first: usize) -> Value {
        json!({
            "tokens": self.pieces[first..],
            "token_logprobs": self.log_probs[first..],
            "top_logprobs": self.likeliest[first..],
            "text_offset": self.offsets[first..],
        })
    }
}

#[cfg(test)]
mod tests {
    use mae::Token;

    use super::*;

    fn token(text: &str, end: Option<End>) -> WrittenToken {
        let token = Token { piece: "p".into(), log_prob: -1.0 };
        WrittenToken { index: 0, token, likeliest: Vec::new(), text: text.into(), end }
    }

    #[test]
    fn only_what_will_not_change_is_sent() {
        let mut choice = Choice::default();
        let texts = [" hist@@", " history", " history of"];
        let sent: Vec<Option<String>> = texts.iter().map(|text| choice.write(token(text, None))).collect();
        assert_eq!(sent, [None, Some(" hist".into()), Some("ory".into())]);
        assert_eq!(choice.write(token(" history of", Some(End::Line))).as_deref(), Some(" of"));
        assert_eq!(choice.finish, Some("stop"));
    }

    #[test]
    fn stops_are_left_out_even_in_parts() {
        let mut choice = Choice { stops: vec!["END".into()], ..Choice::default() };
        let texts = ["a E", "a EN", "a ENx", "a ENxy", "a ENxy END"];
        let sent: Vec<String> = texts.iter().filter_map(|text| choice.write(token(text, None))).collect();
        assert_eq!(sent.concat(), "a ENxy ");
        assert_eq!((choice.text.as_str(), choice.finish), ("a ENxy ", Some("stop")));
    }
}
