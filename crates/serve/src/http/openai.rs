//! OpenAI's completions for language models.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::Response;
use mae::{Beginning, ContinueOptions, Sampling};
use serde_json::Value;

use super::describe::{Described, OneOrMany, described};
use super::observe::Notes;
use super::refusal::Refusal;
use super::reply;
use super::stream::{Choices, stream};
use crate::app::{Answered, App, Peer};

described! {
    request
    /// Texts to continue. Unknown fields are ignored.
    CompletionRequest {
        /// Name of the model.
        model: Option<String>,
        /// Text, or a list of texts.
        prompt: Option<Prompt>,
        /// Greatest number of new tokens (16).
        max_tokens: Option<usize>,
        /// Divisor of log-probabilities before a token is drawn; 0 takes the likeliest (1).
        temperature: Option<f32>,
        /// Draws among the likeliest tokens that reach this probability (1).
        top_p: Option<f32>,
        /// Continuations of each text (1).
        n: Option<usize>,
        /// Sends tokens as they are written, as server-sent events (false).
        stream: Option<bool>,
        /// `include_usage`: the last event holds the counts of tokens.
        stream_options: Option<StreamOptions>,
        /// Texts that end a continuation; they are left out.
        stop: Option<OneOrMany<String>>,
        /// Seed of the draws (another one each time).
        seed: Option<i64>,
        /// Reports log-probabilities, and those of so many likeliest tokens, at most 20.
        logprobs: Option<usize>,
        /// Puts the text before its continuation (false).
        echo: Option<bool>,
    }
}

described! {
    request
    /// Options of a stream.
    StreamOptions {
        /// The last event holds the counts of tokens (false).
        include_usage: Option<bool>,
    }
}

described! {
    answer
    /// Continuations.
    Completion {
        /// Number of the answer.
        id: String,
        /// `text_completion`.
        object: &'static str,
        /// Time in seconds since 1970.
        created: u64,
        /// Name of the model.
        model: String,
        /// Continuations, in the order of the texts.
        choices: Vec<Value>,
        /// Counts of tokens.
        usage: Option<Usage>,
    }
}

described! {
    answer
    /// Counts of tokens.
    Usage {
        /// Tokens of the texts.
        prompt_tokens: usize,
        /// New tokens.
        completion_tokens: usize,
        /// Both.
        total_tokens: usize,
    }
}

described! {
    answer
    /// The models.
    ModelList {
        /// `list`.
        object: &'static str,
        /// Language models, then translation models.
        data: Vec<ModelCard>,
    }
}

described! {
    answer
    /// A model.
    ModelCard {
        /// Its name.
        id: String,
        /// `model`.
        object: &'static str,
        /// 0.
        created: u64,
        /// `mae`.
        owned_by: &'static str,
        /// `language_modeling` or `translation`.
        task: &'static str,
        /// Source and target language of a translation model.
        languages: Option<Vec<String>>,
    }
}

/// Likeliest tokens that can be asked for, and continuations of a text.
const MOST_LIKELIEST: usize = 20;
const MOST_CONTINUATIONS: usize = 16;

/// `POST /v1/completions`.
pub(super) async fn completions(
    State(app): State<Arc<App>>,
    axum::Extension(peer): axum::Extension<Peer>,
    headers: HeaderMap,
    request: Request<Body>,
) -> Response {
    answer(&app, peer, &headers, request).await.unwrap_or_else(Refusal::openai)
}

async fn answer(app: &App, peer: Peer, headers: &HeaderMap, request: Request<Body>) -> Answered<Response> {
    let asked: CompletionRequest = reply::parsed(request, app.reading()).await?;
    let prompts = prompts(&asked)?;
    let client = app.admit(peer, headers, None, prompts.len()).map_err(|refusal| match refusal.status {
        // What OpenAI answers where a key is missing.
        StatusCode::BAD_REQUEST => Refusal { status: StatusCode::UNAUTHORIZED, ..refusal },
        _ => refusal,
    })?;
    let registry = app.registry();
    let name = asked.model.as_deref().unwrap_or("");
    let model = match asked.model {
        None => registry.writers.first(),
        Some(_) => registry.writer(name),
    };
    let model = model
        .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, format!("The model `{name}` does not exist")))?;
    let count = asked.n.unwrap_or(1);
    if count == 0 || count > MOST_CONTINUATIONS {
        return Err(Refusal::bad(format!("n must be between 1 and {MOST_CONTINUATIONS}")));
    }
    let likeliest = asked.logprobs.unwrap_or(0);
    if likeliest > MOST_LIKELIEST {
        return Err(Refusal::bad(format!("logprobs must be at most {MOST_LIKELIEST}")));
    }
    if let Some(limit) = app.config.limits.batch.filter(|limit| prompts.len() * count > *limit) {
        return Err(Refusal::bad(format!("{} continuations are more than {limit}", prompts.len() * count)));
    }
    for prompt in &prompts {
        let size = prompt.chars().count();
        if let Some(limit) = app.config.limits.characters.filter(|limit| size > *limit) {
            return Err(Refusal::bad(format!("prompt ({size}) exceeds text limit ({limit})")));
        }
    }
    let options = options(&asked, app.config.limits.new_tokens)?;
    let begin = |prompt: &String, rank| Beginning { prompt: prompt.clone(), options, rank, likeliest };
    let texts: Vec<Beginning> =
        prompts.iter().flat_map(|prompt| (0..count).map(move |rank| begin(prompt, rank))).collect();
    let choices = Choices::new(&asked, &prompts, count, model);
    let sentences = texts.len();
    let answers = model.worker.submit(client, texts).map_err(Refusal::overloaded)?;
    let notes = Notes { model: model.name.clone(), sentences, texts: prompts, answers: Vec::new() };
    let mut response = if asked.stream == Some(true) {
        stream(choices, answers)
    } else {
        let whole = tokio::time::timeout(app.config.limits.answer, choices.gather(answers)).await;
        reply::json(StatusCode::OK, &whole.map_err(|_| Refusal::late(app.config.limits.answer))??)
    };
    response.extensions_mut().insert(notes);
    Ok(response)
}

/// A text or a list of texts, before it is known to be one.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct Prompt(Value);

impl Described for Prompt {
    fn schema() -> Value {
        OneOrMany::<String>::schema()
    }
}

fn prompts(asked: &CompletionRequest) -> Answered<Vec<String>> {
    let values = match asked.prompt.clone() {
        None => return Err(Refusal::bad("prompt is missing")),
        Some(Prompt(Value::Array(values))) => values,
        Some(Prompt(value)) => vec![value],
    };
    let text = |value: Value| match value {
        Value::String(text) => Ok(text),
        _ => Err(Refusal::bad("prompt must be a text or a list of texts; token ids are not read")),
    };
    match values.is_empty() {
        true => Err(Refusal::bad("prompt is empty")),
        false => values.into_iter().map(text).collect(),
    }
}

/// Options of the search, checked.
fn options(asked: &CompletionRequest, most: usize) -> Answered<ContinueOptions> {
    let max_len = asked.max_tokens.unwrap_or(16);
    if max_len > most {
        return Err(Refusal::bad(format!("max_tokens must be at most {most}")));
    }
    let (temperature, top_p) = (asked.temperature.unwrap_or(1.0), asked.top_p.unwrap_or(1.0));
    let greedy = temperature == 0.0;
    let sampling = Sampling { topk: None, topp: Some(top_p).filter(|p| *p < 1.0) };
    let options = ContinueOptions {
        max_len,
        sampling: (!greedy).then_some(sampling),
        temperature: if greedy { 1.0 } else { temperature },
        seed: asked.seed.map_or_else(new_seed, |seed| seed as u64),
        unknown: false,
    };
    options.check().map_err(|faults| Refusal::bad(faults.0.join("; ")))?;
    Ok(options)
}

/// A seed that no earlier request had.
fn new_seed() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    now.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

/// `GET /v1/models`.
pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    let registry = app.registry();
    let card = |id: &String, task, languages| ModelCard {
        id: id.clone(),
        object: "model",
        created: 0,
        owned_by: "mae",
        task,
        languages,
    };
    let writers = registry.writers.iter().map(|model| card(&model.name, "language_modeling", None));
    let translators = registry.translators.iter().map(|model| {
        let languages = vec![model.source.clone(), model.target.clone()];
        card(&model.name, "translation", Some(languages))
    });
    let data = writers.chain(translators).collect();
    reply::json(StatusCode::OK, &ModelList { object: "list", data })
}
