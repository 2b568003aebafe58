//! Ranks find one another: all connect to rank 0, which tells each the addresses of the others.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::Place;
use crate::{Error, Result};

/// Time within which all ranks must have come.
const DEADLINE: Duration = Duration::from_secs(300);
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// First bytes of every connection.
const GREETING: &[u8; 8] = b"mae-rk01";

/// Connections of a rank to the others.
pub(super) struct Met {
    /// Host and process of each rank.
    pub(super) names: Vec<String>,
    /// To every other rank, for values.
    pub(super) peers: Vec<Option<TcpStream>>,
    /// For signs of life: of rank 0 to all others, of the others to rank 0.
    pub(super) links: Vec<(usize, TcpStream)>,
}

/// A rank as it introduces itself.
struct Member {
    rank: usize,
    address: SocketAddr,
    name: String,
}

/// Host and process of this rank.
pub(super) fn own_name() -> String {
    format!("{}, process {}", host(), std::process::id())
}

/// Name of this machine.
pub(super) fn host() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let name = read("/proc/sys/kernel/hostname").or_else(|| std::env::var("HOSTNAME").ok());
    name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or("localhost".into())
}

/// Connects all ranks; rank 0 listens at `address`.
pub(super) fn meet(place: Place, address: &str) -> Result<Met> {
    if place.is_first() {
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
        let listener = bind(port).map_err(|error| {
            Error::Launch(format!(
                "rank 0 cannot listen at port {port}: {error}; choose another one with MASTER_PORT"
            ))
        })?;
        meet_at(place, listener)
    } else {
        join(place, address)
    }
}

/// Rank 0, at a port that is open already.
pub(super) fn meet_at(place: Place, listener: TcpListener) -> Result<Met> {
    let values = listen()?;
    let own = Member { rank: 0, address: local(&values)?, name: own_name() };
    let mut met: Vec<Option<(Member, TcpStream)>> = (1..place.size).map(|_| None).collect();
    let deadline = Instant::now() + DEADLINE;
    while met.iter().any(Option::is_none) {
        let missing =
            || met.iter().enumerate().filter(|(_, m)| m.is_none()).map(|(i, _)| (i + 1).to_string());
        let Some(mut stream) = accept(&listener, deadline)? else {
            let missing = missing().collect::<Vec<_>>().join(", ");
            return Err(Error::Launch(format!(
                "rank {missing} of {} did not come within {} s: were all processes started, and can they reach this machine?",
                place.size,
                DEADLINE.as_secs()
            )));
        };
        // Whoever says something else is no rank of this run.
        if let Ok(member) = receive_member(&mut stream, place.size)
            && let Some(seat) = member.rank.checked_sub(1).and_then(|at| met.get_mut(at))
        {
            if seat.is_some() {
                return Err(Error::Launch(format!(
                    "two processes say that they are rank {}: another run may use the same address; choose another MASTER_PORT",
                    member.rank
                )));
            }
            *seat = Some((member, stream));
        }
    }
    let met: Vec<(Member, TcpStream)> = met.into_iter().flatten().collect();
    let members: Vec<&Member> = std::iter::once(&own).chain(met.iter().map(|(member, _)| member)).collect();
    let table: Vec<u8> = members.iter().flat_map(|member| bytes_of(member, place.size)).collect();
    for (member, stream) in &met {
        (&mut &*stream).write_all(&table).map_err(|error| broken(member.rank, &error))?;
    }
    let names = members.iter().map(|member| member.name.clone()).collect();
    let links = met.into_iter().map(|(member, stream)| (member.rank, stream)).collect();
    Ok(Met { names, peers: accept_peers(place, &values, deadline)?, links })
}

/// Any other rank.
fn join(place: Place, address: &str) -> Result<Met> {
    let deadline = Instant::now() + DEADLINE;
    let mut first = connect(address, deadline)
        .map_err(|error| Error::Launch(format!("rank 0 cannot be reached at {address}: {error}")))?;
    let values = listen()?;
    let own = Member { rank: place.rank, address: local(&values)?, name: own_name() };
    let fault = |error: io::Error| broken(0, &error);
    first.write_all(&bytes_of(&own, place.size)).map_err(fault)?;
    let host = first.peer_addr().map_err(fault)?.ip().to_canonical();
    first.set_read_timeout(Some(DEADLINE)).map_err(fault)?;
    let table = (0..place.size).map(|_| read_member(&mut first, place.size));
    let table: Vec<Member> = table.collect::<io::Result<_>>().map_err(fault)?;
    let mut peers = Vec::new();
    for member in &table[..place.rank] {
        // Rank 0 sees ranks of its own machine, and itself, at addresses that mean nothing elsewhere.
        let is_of_first = member.address.ip().is_loopback() || member.address.ip().is_unspecified();
        let at = SocketAddr::new(if is_of_first { host } else { member.address.ip() }, member.address.port());
        let mut peer = connect(&at.to_string(), deadline).map_err(|error| broken(member.rank, &error))?;
        peer.write_all(&bytes_of(&own, place.size)).map_err(|error| broken(member.rank, &error))?;
        peers.push(Some(peer));
    }
    let later = accept_peers(place, &values, deadline)?;
    peers.extend(later.into_iter().skip(place.rank));
    Ok(Met { names: table.into_iter().map(|m| m.name).collect(), peers, links: vec![(0, first)] })
}

/// Accepts the connections of all higher ranks.
fn accept_peers(place: Place, values: &TcpListener, deadline: Instant) -> Result<Vec<Option<TcpStream>>> {
    let mut peers: Vec<Option<TcpStream>> = (0..place.size).map(|_| None).collect();
    while let Some(missing) = (place.rank + 1..place.size).find(|&rank| peers[rank].is_none()) {
        let Some(mut stream) = accept(values, deadline)? else {
            let error = Error::Launch(format!("rank {missing} did not connect to rank {}", place.rank));
            return Err(error);
        };
        if let Ok(member) = receive_member(&mut stream, place.size) {
            peers[member.rank] = Some(stream);
        }
    }
    Ok(peers)
}

fn listen() -> Result<TcpListener> {
    bind(0).map_err(|error| Error::Launch(format!("no port can be opened: {error}")))
}

/// Listens to addresses of both kinds, or to those of version 4 where there are no others.
pub(super) fn bind(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

fn local(listener: &TcpListener) -> Result<SocketAddr> {
    listener.local_addr().map_err(|error| Error::Launch(format!("no port can be opened: {error}")))
}

/// The next connection before the deadline.
fn accept(listener: &TcpListener, deadline: Instant) -> Result<Option<TcpStream>> {
    let fault = |error: io::Error| Error::Launch(format!("waiting for other ranks: {error}"));
    listener.set_nonblocking(true).map_err(fault)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).map_err(fault)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
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

/// Connects, again and again until the deadline: the other side may not listen yet.
pub(super) fn connect(address: &str, deadline: Instant) -> io::Result<TcpStream> {
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
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn broken(rank: usize, error: &io::Error) -> Error {
    Error::Peer { rank, name: String::new(), why: format!("the connection broke at the start: {error}") }
}

/// A member as it travels: greeting, rank, number of ranks, address, name.
fn bytes_of(member: &Member, size: usize) -> Vec<u8> {
    let ip = match member.address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let name = &member.name.as_bytes()[..member.name.len().min(255)];
    let numbers = [member.rank as u32, size as u32].map(u32::to_le_bytes).concat();
    let port = member.address.port().to_le_bytes();
    [&GREETING[..], &numbers, &ip, &port, &[name.len() as u8], name].concat()
}

fn read_member(stream: &mut TcpStream, size: usize) -> io::Result<Member> {
    let mut head = [0; 35];
    stream.read_exact(&mut head)?;
    let number =
        |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
    if &head[..8] != GREETING || number(12) != size || number(8) >= size {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "another program, or a run of another size"));
    }
    let octets: [u8; 16] = head[16..32].try_into().expect("sixteen bytes");
    let ip = IpAddr::from(octets).to_canonical();
    let mut name = vec![0; head[34].into()];
    stream.read_exact(&mut name)?;
    let address = SocketAddr::new(ip, u16::from_le_bytes([head[32], head[33]]));
    Ok(Member { rank: number(8), address, name: String::from_utf8_lossy(&name).into_owned() })
}

/// The introduction of whoever has connected, at the address that it has connected from.
fn receive_member(stream: &mut TcpStream, size: usize) -> io::Result<Member> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut member = read_member(stream, size)?;
    stream.set_read_timeout(None)?;
    member.address.set_ip(stream.peer_addr()?.ip().to_canonical());
    Ok(member)
}
