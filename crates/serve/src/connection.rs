//! A connection: HTTP/1.1 with limits on headers, on time, and on clients that take nothing.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, Sleep};

use crate::app::{App, Peer};

/// Headers of a request, and bytes of them.
const MOST_HEADERS: usize = 64;
const HEADER_BYTES: usize = 32 << 10;

/// Serves a connection until it ends, or until its request is answered after `stopping` has become true.
pub(crate) async fn serve(
    app: Arc<App>,
    router: Router,
    (stream, address): (TcpStream, SocketAddr),
    mut stopping: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
) {
    app.metrics.connections.fetch_add(1, Ordering::Relaxed);
    // Answers are written whole; there is nothing to gather. A socket that refuses works too.
    stream.set_nodelay(true).ok();
    let limits = &app.config.limits;
    let patient = TokioIo::new(Patient::new(stream, limits.transfer));
    let service = TowerToHyperService::new(router.layer(axum::Extension(Peer(address.ip()))));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEADER_BYTES);
    let mut connection = std::pin::pin!(builder.serve_connection(patient, service));
    tokio::select! {
        // An error here is a client that broke the rules or went away.
        _ = connection.as_mut() => {}
        () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => {
            connection.as_mut().graceful_shutdown();
            connection.as_mut().await.ok();
        }
    }
    app.metrics.connections.fetch_sub(1, Ordering::Relaxed);
}

/// Answers a connection for which there is no place.
pub(crate) async fn refuse(mut stream: TcpStream, _permit: OwnedSemaphorePermit) {
    let body = "{\"error\":\"Overloaded: too many connections; try again later\"}";
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let speak = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // A client that is still writing would lose the answer if the connection were closed at once.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    // A client that does not listen is not waited for.
    tokio::time::timeout(FAREWELL, speak).await.ok();
}

/// Time for a client to take a refusal.
const FAREWELL: Duration = Duration::from_secs(1);

/// A stream that gives up on a client that takes nothing of its answer for too long.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    /// Running while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    /// The result of a write, or an error if none has gone on for too long.
    fn within<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = None;
            return result;
        }
        let patience = self.patience;
        let waiting =
            self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + patience)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.within(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.within(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.within(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
