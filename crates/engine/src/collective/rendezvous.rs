//! Ranks find one another: all connect to rank 0, which tells each the addresses of the others.

mod member;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use self::member::{Member, bytes_of, read_member, receive_member};
use super::lifeline::Lifeline;
use super::sockets::{accept, bind, connect, is_closed};
use super::{Ending, Place};
use crate::{Error, Result};

/// Time within which all ranks must have come.
const DEADLINE: Duration = Duration::from_secs(300);
/// Connections of a rank to the others.
pub(super) struct Met {
    /// To every other rank, for values.
    pub(super) peers: Vec<Option<TcpStream>>,
    /// For signs of life: of rank 0 to all others, of the others to rank 0.
    pub(super) lifeline: Lifeline,
}

impl Met {
    /// Connects a rank to its peers while the lifeline watches; the others are told why if that fails.
    fn by(
        lifeline: Lifeline,
        connect: impl FnOnce(&Lifeline) -> Result<Vec<Option<TcpStream>>>,
    ) -> Result<Self> {
        match connect(&lifeline) {
            Ok(peers) => Ok(Self { peers, lifeline }),
            Err(error) => {
                lifeline.leave(Ending::Failed(&error.to_string()));
                Err(error)
            }
        }
    }
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
        // Nobody says anything before the table has come: a connection can be read only if it is closed.
        let ended = || met.iter().flatten().find(|(_, stream)| is_closed(stream));
        let all_live = || match ended() {
            None => Ok(()),
            Some((Member { rank, name, .. }, _)) => {
                Err(Error::Peer { rank: *rank, name: name.clone(), why: "its process has ended".into() })
            }
        };
        let Some(mut stream) = accept(&listener, deadline, all_live)? else {
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
    let lifeline = Lifeline::new(place, names, links)?;
    Met::by(lifeline, |lifeline| accept_peers(place, &values, deadline, lifeline))
}

/// Any other rank.
fn join(place: Place, address: &str) -> Result<Met> {
    let deadline = Instant::now() + DEADLINE;
    let mut first = connect(address, || Instant::now() < deadline)
        .map_err(|error| Error::Launch(format!("rank 0 cannot be reached at {address}: {error}")))?;
    let values = listen()?;
    let own = Member { rank: place.rank, address: local(&values)?, name: own_name() };
    let fault = |error: io::Error| broken(0, &error);
    first.write_all(&bytes_of(&own, place.size)).map_err(fault)?;
    let host = first.peer_addr().map_err(fault)?.ip().to_canonical();
    first.set_read_timeout(Some(DEADLINE)).map_err(fault)?;
    let table = (0..place.size).map(|_| read_member(&mut first, place.size));
    let table: Vec<Member> = table.collect::<io::Result<_>>().map_err(fault)?;
    let names = table.iter().map(|member| member.name.clone()).collect();
    Met::by(Lifeline::new(place, names, vec![(0, first)])?, |lifeline| {
        let mut peers = Vec::new();
        for member in &table[..place.rank] {
            // Rank 0 sees ranks of its own machine, and itself, at addresses that mean nothing elsewhere.
            let is_of_first = member.address.ip().is_loopback() || member.address.ip().is_unspecified();
            let ip = if is_of_first { host } else { member.address.ip() };
            let at = SocketAddr::new(ip, member.address.port()).to_string();
            let fault =
                |error: io::Error| lifeline.check().err().unwrap_or_else(|| broken(member.rank, &error));
            let goes_on = || Instant::now() < deadline && lifeline.check().is_ok();
            let mut peer = connect(&at, goes_on).map_err(fault)?;
            peer.write_all(&bytes_of(&own, place.size)).map_err(fault)?;
            peers.push(Some(peer));
        }
        let later = accept_peers(place, &values, deadline, lifeline)?;
        peers.extend(later.into_iter().skip(place.rank));
        Ok(peers)
    })
}

/// Accepts the connections of all higher ranks.
fn accept_peers(
    place: Place,
    values: &TcpListener,
    deadline: Instant,
    lifeline: &Lifeline,
) -> Result<Vec<Option<TcpStream>>> {
    let mut peers: Vec<Option<TcpStream>> = (0..place.size).map(|_| None).collect();
    while let Some(missing) = (place.rank + 1..place.size).find(|&rank| peers[rank].is_none()) {
        let Some(mut stream) = accept(values, deadline, || lifeline.check())? else {
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

fn local(listener: &TcpListener) -> Result<SocketAddr> {
    listener.local_addr().map_err(|error| Error::Launch(format!("no port can be opened: {error}")))
}

fn broken(rank: usize, error: &io::Error) -> Error {
    let why = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ended before all ranks were connected".to_owned(),
        _ => format!("the connection broke at the start: {error}"),
    };
    Error::Peer { rank, name: String::new(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(rank: usize) -> Place {
        Place { rank, size: 3, local_rank: rank, local_size: 3 }
    }

    /// A process that comes as rank 1.
    fn greet(address: &str) -> TcpStream {
        let mut stream = connect(address, || true).unwrap();
        // Nobody listens there.
        let at = local(&listen().unwrap()).unwrap();
        let own = Member { rank: 1, address: at, name: "a machine".to_owned() };
        stream.write_all(&bytes_of(&own, 3)).unwrap();
        stream
    }

    fn text(met: Result<Met>) -> String {
        met.err().expect("a rank is missing").to_string()
    }

    #[test]
    fn a_rank_that_dies_while_others_are_awaited_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        drop(greet(&listener.local_addr().unwrap().to_string()));
        let said = text(meet_at(place(0), listener));
        assert!(said.contains("rank 1 (a machine)") && said.contains("its process has ended"), "{said}");
    }

    #[test]
    fn a_rank_that_dies_before_it_is_connected_is_named_by_all() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let said = std::thread::scope(|scope| {
            let first = scope.spawn(|| text(meet_at(place(0), listener)));
            let third = scope.spawn(|| text(meet(place(2), &address)));
            let mut stream = greet(&address);
            (0..3).for_each(|_| drop(read_member(&mut stream, 3).unwrap()));
            drop(stream);
            [first, third].map(|rank| rank.join().unwrap())
        });
        for said in said {
            assert!(said.contains("rank 1 (a machine)") && said.contains("its process has ended"), "{said}");
        }
    }
}
