//! Configuration of a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mae::SearchOptions;

use crate::text::languages::pair_in;
use crate::work::batches::Budget;
use crate::work::worker::Bounds;

/// Everything that a server is told at its start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen to (127.0.0.1:5000).
    pub address: SocketAddr,
    /// Models, the default of a pair of languages first.
    pub models: Vec<ModelSource>,
    /// Search of translation models (beam 5).
    pub search: SearchOptions,
    /// Moment at which sentences join others (the next step).
    pub batching: Batching,
    /// Limits of requests and connections.
    pub limits: Limits,
    /// Clients that are served.
    pub access: Access,
    /// Text before and after a translation model (the rules of its folder).
    pub preparation: Preparation,
    /// Case and final punctuation of LibreTranslate's answers (as in the source).
    pub formatting: Formatting,
    /// Texts in the log (none).
    pub log_texts: LogTexts,
}

impl Config {
    /// The defaults, for these models.
    pub fn new(models: Vec<ModelSource>) -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5000),
            models,
            search: SearchOptions::default(),
            batching: Batching::default(),
            limits: Limits::default(),
            access: Access::default(),
            preparation: Preparation::default(),
            formatting: Formatting::default(),
            log_texts: LogTexts::default(),
        }
    }
}

/// A model folder with its name and languages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSource {
    /// The name.
    pub name: String,
    /// Source and target language, if they are given; else the folder or its name tells them.
    pub languages: Option<(String, String)>,
    /// The folder.
    pub folder: PathBuf,
}

/// Reads `FOLDER` or `NAME=FOLDER`. Without a name, the model is named after its folder, or after that of its run
/// (`de-en` for `runs/de-en/checkpoint_best`). A given name that holds a pair of codes tells the languages.
impl FromStr for ModelSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, folder) = match text.split_once('=') {
            Some((name, folder)) if !name.is_empty() && !name.contains('/') => {
                (Some(name.to_owned()), folder)
            }
            _ => (None, text),
        };
        if folder.is_empty() {
            return Err("the folder of the model is missing".into());
        }
        let folder = PathBuf::from(folder);
        let inner = |part: &&str| !part.starts_with("checkpoint") && *part != "average";
        let parts: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
        let of_folder =
            || parts.iter().rev().find(|part| inner(part)).or(parts.last()).map(|part| (*part).to_owned());
        let languages = name.as_deref().and_then(pair_in);
        let name = name.or_else(of_folder).unwrap_or_else(|| "model".into());
        Ok(Self { name, languages, folder })
    }
}

/// Moment at which sentences of a translation model join others. Translations do not depend on it; times do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// The next step.
    #[default]
    Joining,
    /// The end of the batch in work.
    Waiting,
}

/// Limits of requests and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body (2 MiB).
    pub body: usize,
    /// Characters of each text (no limit).
    pub characters: Option<usize>,
    /// Texts of a request (no limit).
    pub batch: Option<usize>,
    /// Alternatives of a translation (8).
    pub alternatives: usize,
    /// New tokens of a continuation (1024).
    pub new_tokens: usize,
    /// Sentences that may wait for a model (20,000).
    pub queue: usize,
    /// Time that the sentences of others may be expected to delay a request (30 s).
    pub wait: Duration,
    /// Sentences and tokens that a model has in work at once (64 and 4096).
    pub budget: Budget,
    /// Connections at once (1024).
    pub connections: usize,
    /// Time for a request's header, and between requests of a connection (15 s).
    pub header: Duration,
    /// Time for a request's body, and for a client that takes nothing of its answer (30 s).
    pub transfer: Duration,
    /// Time until an answer (120 s).
    pub answer: Duration,
    /// Time for requests in work when the server is stopped (30 s).
    pub drain: Duration,
}

impl Limits {
    /// Bounds of what waits for a model.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { jobs: self.queue, wait: self.wait }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 2 << 20,
            characters: None,
            batch: None,
            alternatives: 8,
            new_tokens: 1024,
            queue: 20_000,
            wait: Duration::from_secs(30),
            budget: Budget { sentences: 64, tokens: 4096 },
            connections: 1024,
            header: Duration::from_secs(15),
            transfer: Duration::from_secs(30),
            answer: Duration::from_secs(120),
            drain: Duration::from_secs(30),
        }
    }
}

/// Clients that are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// File of API keys; without one everybody is served.
    pub keys: Option<PathBuf>,
    /// Requests per minute of a key or an address (no limit). A batch counts its texts.
    pub per_minute: Option<u32>,
    /// Origin of a client's address.
    pub proxy: Proxy,
}

/// Origin of a client's address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// The connection.
    #[default]
    None,
    /// The last entry of `X-Forwarded-For`, which a proxy before the server writes.
    Trusted,
}

/// Text before and after a translation model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preparation {
    /// By the rules of the model folder, if it has any.
    #[default]
    Folder,
    /// Moses' normaliser and tokeniser before, its detokeniser after.
    Moses,
    /// None: texts are tokenised already.
    Tokenised,
}

/// Case and final punctuation of translations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Formatting {
    /// As in the source, which LibreTranslate's clients expect.
    #[default]
    LikeSource,
    /// As the model wrote them.
    Model,
}

/// Texts in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogTexts {
    /// None.
    #[default]
    Omitted,
    /// Texts and translations.
    Written,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_languages_come_from_folders_or_are_given() {
        let read = |text: &str| {
            let source: ModelSource = text.parse().unwrap();
            let pair = source.languages.map(|(a, b)| format!("{a}-{b}")).unwrap_or_default();
            format!("{} {pair} {}", source.name, source.folder.display())
        };
        assert_eq!(read("runs/de-en/checkpoint_best"), "de-en  runs/de-en/checkpoint_best");
        assert_eq!(read("base-en-de=a/b"), "base-en-de en-de a/b");
        assert_eq!(read("lm"), "lm  lm");
        assert_eq!(read("runs/a=b/mae7"), "mae7  runs/a=b/mae7");
        assert!("x=".parse::<ModelSource>().is_err());
    }
}
