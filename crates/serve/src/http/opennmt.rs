//! OpenNMT-py's interface: faults of requests have status 200.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use mae::TranslateOptions;
use serde_json::Value;

use super::describe::described;
use super::observe::Notes;
use super::refusal::Refusal;
use super::reply;
use crate::app::{Answered, App, Peer};
use crate::registry::{Registry, TranslationModel};

described! {
    request
    /// A sentence to translate.
    Item {
        /// The sentence.
        src: String,
        /// Number or name of the model; that of the first sentence serves all (0).
        id: Option<Value>,
    }
}

described! {
    answer
    /// A translation of a sentence.
    Translated {
        /// The sentence.
        src: String,
        /// Its translation.
        tgt: String,
        /// Number of translations of each sentence.
        n_best: usize,
        /// Score: the mean log-probability of the tokens, in nats.
        pred_score: f32,
        /// Tokens of the sentence that were cut off, if any.
        cut_tokens: Option<usize>,
        /// Tokens that are not in the model's dictionary, if any.
        unknown_tokens: Option<usize>,
    }
}

described! {
    answer
    /// A model.
    ServedModel {
        /// Its number.
        model_id: usize,
        /// Its name.
        model: String,
        /// `loaded`.
        status: &'static str,
        /// True.
        available: bool,
    }
}

/// `POST /translator/translate`.
pub(super) async fn translate(
    State(app): State<Arc<App>>,
    axum::Extension(peer): axum::Extension<Peer>,
    request: Request<Body>,
) -> Response {
    answer(&app, peer, request).await.unwrap_or_else(Refusal::opennmt)
}

async fn answer(app: &App, peer: Peer, request: Request<Body>) -> Answered<Response> {
    let headers = request.headers().clone();
    let items: Vec<Item> = reply::parsed(request, app.reading()).await?;
    let client = app.admit(peer, &headers, None, items.len())?;
    let registry = app.registry();
    let model = model(&registry, items.first().and_then(|item| item.id.as_ref()))?;
    if let Some(limit) = app.config.limits.batch.filter(|limit| items.len() > *limit) {
        return Err(Refusal::bad(format!("request ({}) exceeds text limit ({limit})", items.len())));
    }
    for item in &items {
        let size = item.src.chars().count();
        if let Some(limit) = app.config.limits.characters.filter(|limit| size > *limit) {
            return Err(Refusal::bad(format!("request ({size}) exceeds text limit ({limit})")));
        }
    }
    let sources: Vec<String> = items.into_iter().map(|item| item.src).collect();
    let options = TranslateOptions { search: app.config.search.clone(), ..TranslateOptions::default() };
    let n_best = options.search.nbest;
    let found = app.translate(model, client, &sources, options).await?;
    let of_rank = |rank: usize| -> Vec<Translated> {
        let translated = |(src, found): (&String, &mae::Translation)| {
            let hypothesis = found.nbest().get(rank).unwrap_or(found.best());
            Translated {
                src: src.clone(),
                tgt: model.finish(&hypothesis.text),
                n_best,
                pred_score: hypothesis.score,
                cut_tokens: Some(found.source.cut).filter(|cut| *cut > 0),
                unknown_tokens: Some(found.source.unknown).filter(|unknown| *unknown > 0),
            }
        };
        sources.iter().zip(&found).map(translated).collect()
    };
    let body: Vec<Vec<Translated>> = (0..n_best).map(of_rank).collect();
    let mut response = reply::json(StatusCode::OK, &body);
    let answers = body[0].iter().map(|best| best.tgt.clone()).collect();
    let notes =
        Notes { model: model.name.clone(), sentences: sources.len(), texts: sources.clone(), answers };
    response.extensions_mut().insert(notes);
    Ok(response)
}

/// The model of a number or a name; the first if none is given.
fn model<'a>(registry: &'a Registry, id: Option<&Value>) -> Answered<&'a Arc<TranslationModel>> {
    let (found, text) = match id {
        None | Some(Value::Null) => (registry.translators.first(), "0".to_owned()),
        Some(Value::String(name)) => {
            let by_number = || registry.translators.get(name.parse::<usize>().ok()?);
            (registry.translator(name).or_else(by_number), name.clone())
        }
        Some(id) => {
            let number = id.as_u64().and_then(|number| usize::try_from(number).ok());
            (number.and_then(|number| registry.translators.get(number)), id.to_string())
        }
    };
    found.ok_or_else(|| Refusal::bad(format!("No such model '{text}'")))
}

/// `GET /translator/models`.
pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    let registry = app.registry();
    let models = registry.translators.iter().enumerate();
    let models = models.map(|(model_id, model)| ServedModel {
        model_id,
        model: model.name.clone(),
        status: "loaded",
        available: true,
    });
    reply::json(StatusCode::OK, &models.collect::<Vec<_>>())
}
