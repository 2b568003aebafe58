//! Ports and connections that wait no longer than they must.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Listens to addresses of both kinds, or to those of version 4 where there are no others.
pub(super) fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

/// The next connection before the deadline, as long as all ranks that have come are there.
pub(super) fn accept(
    listener: &TcpListener,
    deadline: Instant,
    all_live: impl Fn() -> Result<()>,
) -> Result<Option<TcpStream>> {
    let fault = |error: io::Error| Error::Launch(format!("waiting for other ranks: {error}"));
    listener.set_nonblocking(true).map_err(fault)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).map_err(fault)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                all_live()?;
                if Instant::now() > deadline {
                    return Ok(None);
                }
                std::thread::sleep(PAUSE / 10);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fault(error)),
        }
    }
}

/// Returns true if the other side has closed a connection from which nothing is to be read.
pub(super) fn is_closed(stream: &TcpStream) -> bool {
    let peek = || {
        stream.set_nonblocking(true)?;
        let found = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        found
    };
    match peek() {
        Ok(bytes) => bytes == 0,
        Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

/// Connects, again and again while `goes_on`: the other side may not listen yet.
pub(super) fn connect(address: &str, goes_on: impl Fn() -> bool) -> io::Result<TcpStream> {
    loop {
        let attempt = address.to_socket_addrs().and_then(|found| {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
            for at in found {
                match TcpStream::connect_timeout(&at, Duration::from_secs(10)) {
                    Ok(stream) => return Ok(stream),
                    Err(error) => last = error,
                }
            }
            Err(last)
        });
        match attempt {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if !goes_on() => return Err(error),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}
