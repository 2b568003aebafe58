//! The server: listens, loads models again, shuts down.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mae::Device;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

use crate::app::App;
use crate::config::{Config, Preparation};
use crate::error::{Error, Result};
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::registry::TranslationModel;
use crate::text::languages::canonical;
use crate::{connection, http};

/// Threads that read requests and write answers; models have threads of their own.
const THREADS: usize = 2;

/// Connections beyond the limit that are told so at once; more are closed without a word.
const REFUSALS: usize = 256;

/// A server with its models loaded.
pub struct Server {
    app: Arc<App>,
    runtime: Runtime,
}

/// A server that listens.
pub struct Listening {
    app: Arc<App>,
    runtime: Runtime,
    listener: TcpListener,
    address: SocketAddr,
    control: Arc<Control>,
}

/// What a running server can be told.
#[derive(Default)]
pub struct Control {
    stop: Notify,
    reload: Notify,
}

impl Control {
    /// Tells the server to finish what it has, refuse what comes, and end.
    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Tells the server to load models and keys again.
    pub fn reload(&self) {
        self.reload.notify_one();
    }
}

/// A model that is served for other languages than its folder tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherLanguages {
    /// Name of the model.
    pub name: String,
    /// Source and target language that it is served for.
    pub served: [String; 2],
    /// Those of its folder.
    pub folder: [String; 2],
}

impl Server {
    /// Loads the models. Events are written to `log`, one JSON object per line.
    pub fn new(config: Config, device: &Device, log: Box<dyn Write + Send>) -> Result<Self> {
        let metrics = Arc::new(Metrics::default());
        let log = Log::start(log, metrics.clone()).map_err(Error::Thread)?;
        let app = Arc::new(App::new(config, device.clone(), log, metrics)?);
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(THREADS).enable_all().thread_name("http").build();
        Ok(Self { app, runtime: runtime.map_err(Error::Thread)? })
    }

    /// Listens to the configured address.
    pub fn listen(self) -> Result<Listening> {
        let address = self.app.config.address;
        let failed = |source| Error::Listen { address, source };
        let listener = self.runtime.block_on(TcpListener::bind(address)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Listening { app: self.app, runtime: self.runtime, listener, address, control: Arc::default() })
    }
}

impl Listening {
    /// The address, with the port that was chosen for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns true if others than this machine can reach the server and need no key.
    pub fn is_open_to_all(&self) -> bool {
        !self.address.ip().is_loopback() && !self.app.needs_key()
    }

    /// Models with the rules of their folders that texts go through.
    pub fn rules(&self) -> Vec<(String, String)> {
        let registry = self.app.registry();
        let models =
            registry.translators.iter().filter(|_| self.app.config.preparation == Preparation::Folder);
        let models = models.filter(|model| model.translator.models().tools().is_some());
        models.map(|model| (model.name.clone(), model.translator.text_record().rules.to_string())).collect()
    }

    /// Models that are served for other languages than their folders tell, with both pairs.
    pub fn other_languages(&self) -> Vec<OtherLanguages> {
        let registry = self.app.registry();
        let other = |model: &Arc<TranslationModel>| {
            let [from, to] = model.translator.text_record().languages.as_ref()?;
            let folder = [canonical(from), canonical(to)];
            let served = [model.source.clone(), model.target.clone()];
            (folder != served).then(|| OtherLanguages { name: model.name.clone(), served, folder })
        };
        registry.translators.iter().filter_map(other).collect()
    }

    /// A handle that stops and reloads the server.
    pub fn control(&self) -> Arc<Control> {
        self.control.clone()
    }

    /// Serves until it is stopped by its handle, SIGTERM or SIGINT; SIGHUP loads models and keys again.
    pub fn run(self) -> Result<()> {
        let Self { app, runtime, listener, address, control } = self;
        let registry = app.registry();
        let models: Vec<&String> = registry
            .translators
            .iter()
            .map(|m| &m.name)
            .chain(registry.writers.iter().map(|m| &m.name))
            .collect();
        app.log.event(Level::Info, "listening", json!({"address": address.to_string(), "models": models}));
        drop(registry);
        runtime.block_on(async {
            let signals = tokio::spawn(signals(control.clone()));
            accept(&app, listener, &control).await;
            signals.abort();
        });
        // Threads of models end with their last owner; connections that are left are cut.
        runtime.shutdown_timeout(Duration::from_secs(1));
        app.log.event(Level::Info, "stopped", json!({}));
        Ok(())
    }
}

/// Takes connections until the server is told to stop, then waits for those that have a request.
async fn accept(app: &Arc<App>, listener: TcpListener, control: &Control) {
    let limits = app.config.limits;
    let places = Arc::new(Semaphore::new(limits.connections));
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let (stopping, observed) = watch::channel(false);
    let router = http::router(app);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(control.stop.notified());
    loop {
        tokio::select! {
            () = stop.as_mut() => break,
            () = control.reload.notified() => reload(app),
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match (places.clone().try_acquire_owned(), accepted) {
                (Ok(permit), Ok(stream)) => {
                    let serve = connection::serve(app.clone(), router.clone(), stream, observed.clone(), permit);
                    connections.spawn(serve);
                }
                (Err(_), Ok((stream, _))) => {
                    app.metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
                    if let Ok(permit) = refusals.clone().try_acquire_owned() {
                        tokio::spawn(connection::refuse(stream, permit));
                    }
                }
                (_, Err(error)) => {
                    app.log.event(Level::Error, "accept", json!({"error": error.to_string()}));
                    // Mostly too many open files: closing connections helps, trying at once does not.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    drop(listener);
    app.log.event(Level::Info, "stopping", json!({"connections": connections.len()}));
    stopping.send_replace(true);
    let drained = async { while connections.join_next().await.is_some() {} };
    if within(limits.drain, drained).await.is_none() {
        app.log.event(Level::Warning, "cut", json!({"connections": connections.len()}));
        connections.abort_all();
    }
}

async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, future).await.ok()
}

/// Loads models and keys again on a thread of its own, while requests go on.
fn reload(app: &Arc<App>) {
    let app = app.clone();
    tokio::task::spawn_blocking(move || match app.reload() {
        Ok(()) => {
            app.metrics.reloads.fetch_add(1, Ordering::Relaxed);
            app.log.event(Level::Info, "reloaded", json!({}));
        }
        Err(error) => app.log.event(
            Level::Error,
            "reload",
            json!({"error": error.to_string(), "kept": "the models and keys from before"}),
        ),
    });
}

/// Turns signals into orders, until the server ends.
#[cfg(unix)]
async fn signals(control: Arc<Control>) {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = kinds.map(signal) else { return };
    loop {
        tokio::select! {
            _ = terminate.recv() => control.stop(),
            _ = interrupt.recv() => control.stop(),
            _ = hangup.recv() => control.reload(),
        }
    }
}

#[cfg(not(unix))]
async fn signals(control: Arc<Control>) {
    if tokio::signal::ctrl_c().await.is_ok() {
        control.stop();
    }
}
