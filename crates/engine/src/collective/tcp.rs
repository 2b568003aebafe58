//! The back end without a library: a TCP connection between any two ranks.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Mutex;

use super::lifeline::{Lifeline, OnLoss};
use super::rendezvous::{self, Met};
use super::{Collective, Ending, Place};
use crate::{Error, Result};

/// Bytes that a connection takes up without a reader: more are sent by a thread of their own.
const BUFFERED: usize = 1 << 14;
/// Bytes of a gathered message at most.
const LONGEST: u64 = 1 << 32;

/// Ranks that are connected by TCP.
pub struct Tcp {
    place: Place,
    /// To every other rank.
    peers: Vec<Option<TcpStream>>,
    lifeline: Lifeline,
    /// One call at a time.
    turn: Mutex<()>,
}

impl Tcp {
    /// Connects all ranks of a launch; rank 0 listens at `address`, `host:port`.
    pub fn connect(place: Place, address: &str) -> Result<Self> {
        Self::new(place, rendezvous::meet(place, address)?)
    }

    fn new(place: Place, met: Met) -> Result<Self> {
        let copies = met.peers.iter().flatten().map(TcpStream::try_clone).collect::<io::Result<_>>();
        met.lifeline.cut(copies.map_err(|error| Error::Launch(format!("a connection: {error}")))?)?;
        Ok(Self { place, peers: met.peers, lifeline: met.lifeline, turn: Mutex::default() })
    }

    /// Runs `work` on `size` threads, each of them a rank, and returns the results in rank order: for tests.
    pub fn among_threads<R: Send>(size: usize, work: impl Fn(Self) -> R + Sync) -> Vec<R> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
        let address = listener.local_addr().expect("a port of this machine").to_string();
        let mut listener = Some(listener);
        std::thread::scope(|scope| {
            let ranks: Vec<_> = (0..size)
                .map(|rank| {
                    let place = Place { rank, size, local_rank: rank, local_size: size };
                    let (own, address, work) = (listener.take(), &address, &work);
                    scope.spawn(move || {
                        let met = match own {
                            Some(listener) => rendezvous::meet_at(place, listener),
                            None => rendezvous::meet(place, address),
                        };
                        work(met.and_then(|met| Self::new(place, met)).expect("threads of one process meet"))
                    })
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
        })
    }

    fn peer(&self, rank: usize) -> &TcpStream {
        self.peers[rank].as_ref().expect("there is a connection to every other rank")
    }

    /// The error of a broken connection to a rank.
    fn fault(&self, rank: usize) -> impl Fn(io::Error) -> Error + '_ {
        move |error| self.lifeline.verdict(rank, &format!("the connection to it broke: {error}"))
    }

    fn send(&self, rank: usize, bytes: &[u8]) -> Result<()> {
        (&mut self.peer(rank)).write_all(bytes).map_err(self.fault(rank))
    }

    fn receive(&self, rank: usize, bytes: &mut [u8]) -> Result<()> {
        (&mut self.peer(rank)).read_exact(bytes).map_err(self.fault(rank))
    }

    /// Sends to and receives from all others, the nearest first, so that every message has a reader. `longest` is that of
    /// the messages in bytes.
    fn swap(
        &self,
        longest: usize,
        send: impl Fn(usize) -> Result<()> + Sync,
        mut receive: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let Place { rank, size, .. } = self.place;
        let send_all = || (1..size).try_for_each(|step| send((rank + step) % size));
        let mut receive_all = || (1..size).try_for_each(|step| receive((rank + size - step) % size));
        if longest <= BUFFERED {
            send_all()?;
            return receive_all();
        }
        std::thread::scope(|scope| {
            let sending = scope.spawn(send_all);
            let received = receive_all();
            sending.join().expect("sending does not panic").and(received)
        })
    }
}

impl Collective for Tcp {
    fn place(&self) -> Place {
        self.place
    }

    fn describe(&self) -> String {
        format!("{} processes, connected by TCP", self.place.size)
    }

    fn exchange(&self, send: &[f32], slices: &[Range<usize>], receive: &mut [f32]) -> Result<()> {
        let _turn = self.turn.lock();
        let rank = self.place.rank;
        let length = slices[rank].len();
        let parts = |from: usize| from * length..(from + 1) * length;
        receive[parts(rank)].copy_from_slice(&send[slices[rank].clone()]);
        let longest = slices.iter().map(Range::len).max().unwrap_or(0);
        self.swap(
            size_of::<f32>() * longest,
            |to| self.send(to, bytemuck::cast_slice(&send[slices[to].clone()])),
            |from| self.receive(from, bytemuck::cast_slice_mut(&mut receive[parts(from)])),
        )
    }

    fn collect(&self, values: &mut [f32], slices: &[Range<usize>]) -> Result<()> {
        let _turn = self.turn.lock();
        let own = values[slices[self.place.rank].clone()].to_vec();
        let longest = slices.iter().map(Range::len).max().unwrap_or(0);
        self.swap(
            size_of::<f32>() * longest,
            |to| self.send(to, bytemuck::cast_slice(&own)),
            |from| self.receive(from, bytemuck::cast_slice_mut(&mut values[slices[from].clone()])),
        )
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let _turn = self.turn.lock();
        let mut all: Vec<Vec<u8>> = vec![Vec::new(); self.place.size];
        all[self.place.rank] = own.to_vec();
        // Lengths first: the others decide by them whether they need a thread.
        let mut lengths = vec![own.len() as u64; self.place.size];
        self.swap(
            0,
            |to| self.send(to, &(own.len() as u64).to_le_bytes()),
            |from| {
                let mut length = [0; 8];
                self.receive(from, &mut length)?;
                lengths[from] = u64::from_le_bytes(length);
                Ok(())
            },
        )?;
        if let Some(from) = lengths.iter().position(|length| *length > LONGEST) {
            return Err(self.lifeline.verdict(from, "it sent something that is no message"));
        }
        self.swap(
            own.len(),
            |to| self.send(to, own),
            |from| {
                all[from] = vec![0; lengths[from] as usize];
                self.receive(from, &mut all[from])
            },
        )?;
        Ok(all)
    }

    fn broadcast(&self, values: &mut [f32]) -> Result<()> {
        let _turn = self.turn.lock();
        if self.place.is_first() {
            return (1..self.place.size).try_for_each(|to| self.send(to, bytemuck::cast_slice(values)));
        }
        self.receive(0, bytemuck::cast_slice_mut(values))
    }

    fn on_loss(&self, ended: OnLoss) {
        self.lifeline.on_loss(ended);
    }

    fn leave(&self, ending: Ending<'_>) {
        self.lifeline.leave(ending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathers_and_broadcasts() {
        let all = Tcp::among_threads(3, |ranks| {
            let rank = ranks.place().rank;
            // Longer than what connections take up by themselves.
            let own = vec![rank as u8; [0, 3, 300_000][rank]];
            let gathered = ranks.gather(&own).unwrap();
            let mut values = vec![rank as f32; 100_000];
            ranks.broadcast(&mut values).unwrap();
            ranks.barrier().unwrap();
            ranks.leave(Ending::Finished);
            (gathered, values)
        });
        for (gathered, values) in all {
            assert_eq!(gathered.iter().map(Vec::len).collect::<Vec<_>>(), [0, 3, 300_000]);
            assert!(gathered[2].iter().all(|byte| *byte == 2));
            assert!(values.iter().all(|value| *value == 0.0));
        }
    }

    #[test]
    fn a_rank_that_ends_is_named_by_all_others() {
        // Once all ranks are connected.
        let wait = |ranks: Tcp| {
            let error = ranks.barrier().and_then(|()| ranks.barrier()).unwrap_err().to_string();
            ranks.leave(Ending::Failed(&error));
            error
        };
        let errors = Tcp::among_threads(4, |ranks| match ranks.place().rank {
            2 => {
                ranks.barrier().unwrap();
                // As a process that is killed: no farewell.
                String::new()
            }
            _ => wait(ranks),
        });
        for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != 2) {
            assert!(error.contains("rank 2") && error.contains("process has ended"), "rank {rank}: {error}");
        }
        let errors = Tcp::among_threads(3, |ranks| match ranks.place().rank {
            1 => {
                ranks.barrier().unwrap();
                ranks.leave(Ending::Failed("the disk is full"));
                String::new()
            }
            _ => wait(ranks),
        });
        assert!(errors[0].contains("rank 1") && errors[0].contains("the disk is full"), "{}", errors[0]);
        assert!(errors[2].contains("rank 1") && errors[2].contains("the disk is full"), "{}", errors[2]);
    }
}
