//! Our own interface: a translation with the gate of every attention.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use mae::translate::Side;
use mae::{AttentionKind, GateRows, Gates, SwitchedOff, TextForm, TranslateOptions, Translation};

use super::describe::described;
use super::observe::Notes;
use super::refusal::Refusal;
use super::reply;
use crate::app::{Answered, App, Peer};
use crate::registry::TranslationModel;
use crate::text::plan::{Markup, Plan};

described! {
    request
    /// A text to translate.
    GatesRequest {
        /// The text.
        q: Option<String>,
        /// Name of the model (the first translation model).
        model: Option<String>,
        /// Experts and heads that do not take part.
        off: Option<Vec<Off>>,
        /// Number of other translations of each sentence (0).
        alternatives: Option<usize>,
        /// API key, where the server needs one.
        api_key: Option<String>,
    }
}

described! {
    request
    /// Experts and heads of an attention that do not take part.
    Off {
        /// Name of the attention, such as `encoder.layers.0.self_attn`.
        attention: String,
        /// Numbers of experts, from 0; their shares go to the others evenly.
        experts: Option<Vec<usize>>,
        /// Numbers of heads, from 0.
        heads: Option<Vec<usize>>,
    }
}

described! {
    answer
    /// A translation with its gates.
    GatesAnswer {
        /// Name of the model.
        model: String,
        /// Its system, such as `mae`.
        system: String,
        /// Heads of each attention.
        heads: usize,
        /// Heads that each expert leaves out; missing if the model has no experts.
        experts: Option<Vec<Vec<usize>>>,
        /// The translation.
        translation: String,
        /// The sentences of the text.
        sentences: Vec<SentenceAnswer>,
    }
}

described! {
    answer
    /// A sentence with its translation.
    SentenceAnswer {
        /// The sentence.
        source: String,
        /// Its pieces, as the model reads them.
        source_tokens: Vec<String>,
        /// Its translation.
        translation: String,
        /// Score of the translation: the mean log-probability of its tokens, in nats.
        score: f32,
        /// Pieces of the translation, the end mark last.
        tokens: Vec<String>,
        /// Natural-log probabilities of the pieces.
        log_probs: Vec<f32>,
        /// Other translations, the best first.
        alternatives: Vec<String>,
        /// Tokens of the source that were cut off.
        cut_tokens: usize,
        /// Tokens of the source that are not in the dictionary.
        unknown_tokens: usize,
        /// Gates of every attention; none if the model has no gates.
        attentions: Vec<AttentionAnswer>,
    }
}

described! {
    answer
    /// The gates of an attention.
    AttentionAnswer {
        /// Its name.
        name: String,
        /// `encoder`, `decoder` or `cross`.
        kind: &'static str,
        /// Its layer, from 0.
        layer: usize,
        /// `experts` (probabilities) or `heads` (weights).
        unit: &'static str,
        /// `sentence` (one row), `source` or `target` (a row for each piece).
        rows: &'static str,
        /// The rows.
        values: Vec<Vec<f32>>,
    }
}

/// `POST /v1/gates`.
pub(super) async fn gates(
    State(app): State<Arc<App>>,
    axum::Extension(peer): axum::Extension<Peer>,
    request: Request<Body>,
) -> Answered<Response> {
    let headers = request.headers().clone();
    let asked: GatesRequest = reply::parsed(request, app.reading()).await?;
    let client = app.admit(peer, &headers, asked.api_key.as_deref(), 1)?;
    let text = asked.q.filter(|q| !q.is_empty());
    let text = text.ok_or_else(|| Refusal::bad("Invalid request: missing q parameter"))?;
    let size = text.chars().count();
    if let Some(limit) = app.config.limits.characters.filter(|limit| size > *limit) {
        return Err(Refusal::bad(format!("Invalid request: request ({size}) exceeds text limit ({limit})")));
    }
    let registry = app.registry();
    let model = match &asked.model {
        None => registry.translators.first(),
        Some(name) => registry.translator(name),
    };
    let name = asked.model.as_deref().unwrap_or("of translation");
    let model = model.ok_or_else(|| Refusal::bad(format!("the model {name} is not there")))?;
    let off = |off: Off| SwitchedOff {
        attention: off.attention,
        experts: off.experts.unwrap_or_default(),
        heads: off.heads.unwrap_or_default(),
    };
    let alternatives = asked.alternatives.unwrap_or(0);
    if alternatives > app.config.limits.alternatives {
        let most = app.config.limits.alternatives;
        return Err(Refusal::bad(format!("Invalid request: alternatives parameter must be <= {most}")));
    }
    let mut options = TranslateOptions {
        search: app.config.search.clone(),
        off: asked.off.unwrap_or_default().into_iter().map(off).collect(),
        ..TranslateOptions::default().with_gates()
    };
    options.search.nbest = 1 + alternatives;
    options.search.beam = options.search.beam.max(options.search.nbest);
    let plan = Plan::new(&[&text], &model.source, Markup::Text);
    let found = app.translate(model, client, &plan.sentences, options).await?;
    let best: Vec<String> = found.iter().map(|found| model.finish(found.text())).collect();
    let translation = plan.assemble(&best).concat();
    let config = model.translator.config();
    let experts = config.mixture.experts(config.encoder_attention_heads);
    let sentences = plan.sentences.iter().zip(&found).map(|(source, found)| sentence(model, source, found));
    let body = GatesAnswer {
        model: model.name.clone(),
        system: config.mixture.system.to_string(),
        heads: config.encoder_attention_heads,
        experts: experts.map(|experts| experts.left_out()),
        translation: translation.clone(),
        sentences: sentences.collect(),
    };
    let mut response = reply::json(StatusCode::OK, &body);
    let notes = Notes {
        model: model.name.clone(),
        sentences: found.len(),
        texts: vec![text],
        answers: vec![translation],
    };
    response.extensions_mut().insert(notes);
    Ok(response)
}

fn sentence(model: &TranslationModel, source: &str, found: &Translation) -> SentenceAnswer {
    let pieces = model.translator.models().segment(Side::Source, &[model.prepare(source)], TextForm::Tokens);
    let read = found.source.tokens - found.source.cut;
    let pieces = pieces.iter().flat_map(|line| line.split_whitespace());
    let best = found.best();
    let is_expert = model.translator.config().mixture.system.has_experts();
    let unit = if is_expert { "experts" } else { "heads" };
    let gates = found.encoder_gates().unwrap_or_default().iter().chain(best.gates.iter().flatten());
    SentenceAnswer {
        source: source.to_owned(),
        source_tokens: pieces.take(read).chain(["</s>"]).map(str::to_owned).collect(),
        translation: model.finish(&best.text),
        score: best.score,
        tokens: best.tokens.iter().map(|token| token.piece.clone()).collect(),
        log_probs: best.tokens.iter().map(|token| token.log_prob).collect(),
        alternatives: found.nbest()[1..].iter().map(|other| model.finish(&other.text)).collect(),
        cut_tokens: found.source.cut,
        unknown_tokens: found.source.unknown,
        attentions: gates.map(|gates| attention(gates, unit)).collect(),
    }
}

fn attention(gates: &Gates, unit: &'static str) -> AttentionAnswer {
    let (kind, side) = match gates.kind {
        AttentionKind::Encoder => ("encoder", "source"),
        AttentionKind::Decoder => ("decoder", "target"),
        AttentionKind::Cross => ("cross", "target"),
    };
    let rows = match gates.rows {
        GateRows::Sentence(_) => "sentence",
        GateRows::Tokens(_) => side,
    };
    let values = gates.rows.rows().to_vec();
    AttentionAnswer { name: gates.attention.clone(), kind, layer: gates.layer(), unit, rows, values }
}
