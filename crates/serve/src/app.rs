//! What all requests share.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::http::{HeaderMap, StatusCode, header};
use mae::{Device, TextForm, TranslateOptions, Translation};
use serde_json::json;

use crate::access::{Keys, Limiter};
use crate::config::{Config, Proxy};
use crate::error::Result;
use crate::http::refusal::Refusal;
use crate::http::reply::Reading;
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::registry::{Registry, TranslationModel};
use crate::work::batches::Sentence;
use crate::work::queue::Client;

/// What all requests share.
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Log,
    device: Device,
    registry: RwLock<Arc<Registry>>,
    keys: RwLock<Arc<Option<Keys>>>,
    limiter: Limiter,
}

/// The peer of a connection, in the extensions of its requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl App {
    pub(crate) fn new(config: Config, device: Device, log: Log, metrics: Arc<Metrics>) -> Result<Self> {
        let registry = Registry::load(&config, &device, &metrics)?;
        let keys = config.access.keys.as_deref().map(Keys::load).transpose()?;
        Ok(Self {
            config,
            metrics,
            log,
            device,
            registry: RwLock::new(Arc::new(registry)),
            keys: RwLock::new(Arc::new(keys)),
            limiter: Limiter::default(),
        })
    }

    /// The models.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads models and keys again. If anything cannot be loaded, all stays as it is. Requests in work finish with
    /// the models that they began with.
    pub(crate) fn reload(&self) -> Result<()> {
        let registry = Arc::new(Registry::load(&self.config, &self.device, &self.metrics)?);
        let keys = Arc::new(self.config.access.keys.as_deref().map(Keys::load).transpose()?);
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = registry;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        Ok(())
    }

    /// Limits of bodies.
    pub(crate) fn reading(&self) -> Reading {
        Reading { bytes: self.config.limits.body, time: self.config.limits.transfer }
    }

    /// Returns true if clients need a key.
    pub(crate) fn needs_key(&self) -> bool {
        self.config.access.keys.is_some()
    }

    /// The client of a request, if it may be served now. `cost` is the number of its texts.
    pub(crate) fn admit(
        &self,
        peer: Peer,
        headers: &HeaderMap,
        key: Option<&str>,
        cost: usize,
    ) -> Answered<Client> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner).clone();
        let bearer =
            headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let (client, own_limit) = match &*keys {
            None => (Client::Address(self.address(peer, headers)), None),
            Some(keys) => match key.filter(|key| !key.is_empty()).or(bearer) {
                None => return Err(Refusal::bad("Please contact the server operator to get an API key")),
                Some(key) => match keys.find(key) {
                    Some((key, limit)) => (Client::Key(key), limit),
                    None => return Err(Refusal::new(StatusCode::FORBIDDEN, "Invalid API key")),
                },
            },
        };
        if let Some(limit) = own_limit.or(self.config.access.per_minute) {
            let cost = cost.clamp(1, u32::MAX as usize) as u32;
            self.limiter.admit(&client, cost, limit, Instant::now()).map_err(|wait| Refusal {
                retry: Some(wait.as_secs() + 1),
                ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, format!("Slowdown: {limit} per 1 minute"))
            })?;
        }
        Ok(client)
    }

    /// The address of a client: of the connection, or what a trusted proxy says.
    pub(crate) fn address(&self, peer: Peer, headers: &HeaderMap) -> IpAddr {
        let forwarded = || {
            let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
            last.rsplit(',').next()?.trim().parse().ok()
        };
        match self.config.access.proxy {
            Proxy::None => peer.0,
            Proxy::Trusted => forwarded().unwrap_or(peer.0),
        }
    }

    /// Translates sentences; the work is dropped with the future.
    pub(crate) async fn translate(
        &self,
        model: &TranslationModel,
        client: Client,
        sentences: &[String],
        options: TranslateOptions,
    ) -> Answered<Vec<Translation>> {
        let options = Arc::new(TranslateOptions { form: TextForm::Tokens, ..options });
        let job = |text: &String| Sentence { text: model.prepare(text), options: options.clone() };
        let jobs: Vec<Sentence> = sentences.iter().map(job).collect();
        let count = jobs.len();
        let mut answers = model.worker.submit(client, jobs).map_err(Refusal::overloaded)?;
        let mut found: Vec<Option<Translation>> = (0..count).map(|_| None).collect();
        let gather = async {
            for _ in 0..count {
                let Some((index, translation)) = answers.next().await else {
                    return Err(Refusal::failed("the model failed on this request"));
                };
                let translation = translation.map_err(|error| self.explain(&error))?;
                model.count(&translation);
                found[index] = Some(translation);
            }
            Ok(())
        };
        match tokio::time::timeout(self.config.limits.answer, gather).await {
            Ok(done) => done?,
            Err(_) => return Err(Refusal::late(self.config.limits.answer)),
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// An error of a model as an answer: faults of options are the client's.
    fn explain(&self, error: &mae::Error) -> Refusal {
        use mae::translate::Error as Fault;
        match error {
            mae::Error::Translate(Fault::Options(_) | Fault::Experts { .. } | Fault::Prefixes(_)) => {
                Refusal::bad(format!("Invalid request: {error}"))
            }
            _ => {
                self.log.event(Level::Error, "translation", json!({"error": error.to_string()}));
                Refusal::failed(error.to_string())
            }
        }
    }
}

/// Shorthand for what a handler gives.
pub(crate) type Answered<T> = std::result::Result<T, Refusal>;
