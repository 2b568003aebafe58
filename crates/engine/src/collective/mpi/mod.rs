//! MPI, opened at run time: the standard ABI of MPI 5, or the ABI of MPICH or Open MPI.
//!
//! | file | what is in it |
//! |---|---|
//! | `mod` | the back end |
//! | `library` | libraries and their functions |

mod library;

use std::ops::Range;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use self::library::Library;
use super::lifeline::{Lifeline, OnLoss};
use super::rendezvous::{host, own_name};
use super::sockets::{bind, connect};
use super::{Collective, Ending, Launcher, Place};
use crate::{Error, Result};

/// Time within which all ranks connect to rank 0.
const PATIENCE: Duration = Duration::from_secs(20);

/// The processes of an MPI program.
pub struct Mpi {
    place: Place,
    library: Library,
    lifeline: Lifeline,
    /// One call at a time.
    turn: Mutex<()>,
}

impl Mpi {
    /// Opens the library of the launcher and starts MPI. The error says what to install if there is none.
    pub fn start(launcher: Launcher, local: Place) -> Result<Self> {
        let library = Library::open(launcher)?;
        library.start()?;
        let (rank, size) = library.place()?;
        if size != local.size {
            return Err(Error::Launch(format!(
                "{} sees {size} processes, the launcher has started {}: they are not of the same MPI; use the launcher that \
                 belongs to this library",
                library.name(),
                local.size
            )));
        }
        let place = Place { rank, size, ..local };
        let lifeline = lifeline(&library, place)?;
        Ok(Self { place, library, lifeline, turn: Mutex::default() })
    }

    /// The error of a failed call; the lifeline may know which rank is at fault.
    fn fault(&self, outcome: std::result::Result<(), String>) -> Result<()> {
        outcome.map_err(|why| self.lifeline.verdict(self.place.rank, &why))
    }
}

/// Connections of all ranks to rank 0.
fn lifeline(library: &Library, place: Place) -> Result<Lifeline> {
    let fault = |error: std::io::Error| Error::Launch(format!("connections that watch the ranks: {error}"));
    let listener = bind(0).map_err(fault)?;
    let port = listener.local_addr().map_err(fault)?.port();
    let gather = |own: &str| -> Result<Vec<String>> {
        let all = gather(library, place, own.as_bytes()).map_err(Error::Launch)?;
        Ok(all.into_iter().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect())
    };
    let names = gather(&own_name())?;
    let hosts = gather(&format!("{}:{port}", host()))?;
    let deadline = Instant::now() + PATIENCE;
    let here = hosts[0].rsplit_once(':').is_some_and(|(first, _)| first == host());
    let links = if place.is_first() {
        listener.set_nonblocking(true).map_err(fault)?;
        let mut links = Vec::new();
        while links.len() + 1 < place.size {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).map_err(fault)?;
                    stream.set_read_timeout(Some(PATIENCE)).map_err(fault)?;
                    let mut rank = [0; 4];
                    std::io::Read::read_exact(&mut stream, &mut rank).map_err(fault)?;
                    links.push((u32::from_le_bytes(rank) as usize, stream));
                }
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => {
                    let why =
                        "not all ranks can connect to rank 0 by TCP, which tells when one ends".to_owned();
                    return Err(Error::Launch(why));
                }
            }
        }
        links
    } else {
        let address = if here { format!("127.0.0.1:{}", port_of(&hosts[0])) } else { hosts[0].clone() };
        let mut stream = connect(&address, || Instant::now() < deadline).map_err(fault)?;
        std::io::Write::write_all(&mut stream, &(place.rank as u32).to_le_bytes()).map_err(fault)?;
        vec![(0, stream)]
    };
    Lifeline::new(place, names, links)
}

fn port_of(address: &str) -> &str {
    address.rsplit_once(':').map_or("", |(_, port)| port)
}

/// Bytes of all ranks, of any length.
fn gather(library: &Library, place: Place, own: &[u8]) -> std::result::Result<Vec<Vec<u8>>, String> {
    let mut lengths = vec![0; 8 * place.size];
    let even = |rank: usize| 8 * rank..8 * (rank + 1);
    let places: Vec<Range<usize>> = (0..place.size).map(even).collect();
    library.all_gather(&(own.len() as u64).to_le_bytes(), &mut lengths, &places)?;
    let lengths = lengths.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().expect("eight")) as usize);
    let mut end = 0;
    let places: Vec<Range<usize>> = lengths
        .map(|length| {
            end += length;
            end - length..end
        })
        .collect();
    let mut all = vec![0; end];
    library.all_gather(own, &mut all, &places)?;
    Ok(places.into_iter().map(|range| all[range].to_vec()).collect())
}

/// The same places in bytes.
fn in_bytes(slices: &[Range<usize>]) -> Vec<Range<usize>> {
    slices.iter().map(|slice| size_of::<f32>() * slice.start..size_of::<f32>() * slice.end).collect()
}

impl Collective for Mpi {
    fn place(&self) -> Place {
        self.place
    }

    fn describe(&self) -> String {
        format!("{} processes, MPI ({})", self.place.size, self.library.name())
    }

    fn exchange(&self, send: &[f32], slices: &[Range<usize>], receive: &mut [f32]) -> Result<()> {
        let _turn = self.turn.lock();
        self.lifeline.check()?;
        let length = slices[self.place.rank].len();
        let received: Vec<_> = (0..self.place.size).map(|rank| rank * length..(rank + 1) * length).collect();
        let (send, receive) = (bytemuck::cast_slice(send), bytemuck::cast_slice_mut(receive));
        self.fault(self.library.all_to_all(send, &in_bytes(slices), receive, &in_bytes(&received)))
    }

    fn collect(&self, values: &mut [f32], slices: &[Range<usize>]) -> Result<()> {
        let _turn = self.turn.lock();
        self.lifeline.check()?;
        let own = values[slices[self.place.rank].clone()].to_vec();
        let values = bytemuck::cast_slice_mut(values);
        self.fault(self.library.all_gather(bytemuck::cast_slice(&own), values, &in_bytes(slices)))
    }

    fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let _turn = self.turn.lock();
        self.lifeline.check()?;
        let mut all = Vec::new();
        self.fault(gather(&self.library, self.place, own).map(|gathered| all = gathered))?;
        Ok(all)
    }

    fn broadcast(&self, values: &mut [f32]) -> Result<()> {
        let _turn = self.turn.lock();
        self.lifeline.check()?;
        let pieces = bytemuck::cast_slice_mut::<f32, u8>(values).chunks_mut(1 << 30);
        pieces.into_iter().try_for_each(|piece| self.fault(self.library.broadcast(piece)))
    }

    fn may_hang(&self) -> bool {
        true
    }

    fn on_loss(&self, ended: OnLoss) {
        self.lifeline.on_loss(ended);
    }

    fn leave(&self, ending: Ending<'_>) {
        self.lifeline.leave(ending);
        // A process that ends without MPI_Finalize is one that has failed, also for the launcher.
        if ending == Ending::Finished {
            self.library.finish();
        }
    }
}
