//! Libraries of MPI and the functions that are used of them.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::path::{Path, PathBuf};

use libloading::Library as Shared;

use crate::collective::Launcher;
use crate::{Error, Result};

/// An opened library of MPI.
pub(super) enum Library {
    /// The standard ABI or Open MPI's: handles are addresses.
    Addresses(Functions<*mut c_void>),
    /// MPICH's own ABI: handles are numbers.
    Numbers(Functions<c_int>),
}

/// Names under which a library is looked for, and its ABI.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Abi {
    Standard,
    Mpich,
    OpenMpi,
}

const STANDARD: (&str, Abi) = ("libmpi_abi.so.1", Abi::Standard);
const STANDARD_PLAIN: (&str, Abi) = ("libmpi_abi.so", Abi::Standard);
const MPICH: (&str, Abi) = ("libmpi.so.12", Abi::Mpich);
const OPEN_MPI: (&str, Abi) = ("libmpi.so.40", Abi::OpenMpi);

type Outcome = std::result::Result<(), String>;

/// Functions of MPI by their prototypes in the standard; `H` is a handle.
pub(super) struct Functions<H> {
    name: String,
    world: H,
    byte: H,
    serialized: c_int,
    // SAFETY: types of pointers, not calls. Each pointer was looked up under the name of its prototype; every call has a
    // note of its own.
    init: unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int,
    rank: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    size: unsafe extern "C" fn(H, *mut c_int) -> c_int,
    #[allow(clippy::type_complexity, reason = "the prototype of MPI_Alltoallv")]
    all_to_all: unsafe extern "C" fn(
        *const c_void,
        *const c_int,
        *const c_int,
        H,
        *mut c_void,
        *const c_int,
        *const c_int,
        H,
        H,
    ) -> c_int,
    all_gather:
        unsafe extern "C" fn(*const c_void, c_int, H, *mut c_void, *const c_int, *const c_int, H, H) -> c_int,
    broadcast: unsafe extern "C" fn(*mut c_void, c_int, H, c_int, H) -> c_int,
    set_handler: unsafe extern "C" fn(H, H) -> c_int,
    errors_return: H,
    finalize: unsafe extern "C" fn() -> c_int,
}

// SAFETY: handles are constants of the library, and the functions may be called from any thread, one at a time
// (MPI_THREAD_SERIALIZED), which the back end sees to.
unsafe impl<H> Send for Functions<H> {}
// SAFETY: as above.
unsafe impl<H> Sync for Functions<H> {}

/// Folders that are searched after the system's own: those of MAE_MPI_LIBS (separated by colons), and those beside the
/// launcher, which is the parent of this process or in PATH.
fn folders() -> Vec<PathBuf> {
    let listed = std::env::var_os("MAE_MPI_LIBS");
    let mut folders: Vec<PathBuf> = listed.iter().flat_map(std::env::split_paths).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let launchers = std::env::split_paths(&path).filter(|bin| bin.join("mpiexec").exists());
    for bin in parent_folder().into_iter().chain(launchers) {
        if let Some(root) = bin.parent() {
            folders.extend(["lib", "lib64"].map(|name| root.join(name)));
        }
    }
    folders.extend(
        [
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64/mpich/lib",
            "/usr/lib64/openmpi/lib",
        ]
        .map(PathBuf::from),
    );
    folders
}

/// Folder of the program that has started this one.
#[cfg(unix)]
fn parent_folder() -> Option<PathBuf> {
    let parent = std::fs::read_link(format!("/proc/{}/exe", std::os::unix::process::parent_id())).ok()?;
    parent.parent().map(Path::to_owned)
}

#[cfg(not(unix))]
fn parent_folder() -> Option<PathBuf> {
    None
}

/// Opens a library for good.
#[cfg(unix)]
fn load(path: &Path) -> Option<Shared> {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: these are libraries of MPI; loading them runs their initialisers, which is what they are for. Open MPI needs
    // its symbols to be global.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.ok().map(Into::into)
}

/// Launchers are used on Linux only.
#[cfg(not(unix))]
fn load(_: &Path) -> Option<Shared> {
    None
}

impl Library {
    /// Opens the library that belongs to the launcher.
    pub(super) fn open(launcher: Launcher) -> Result<Self> {
        let wanted: &[(&str, Abi)] = match launcher {
            Launcher::OpenMpi => &[OPEN_MPI],
            Launcher::Mpich => &[STANDARD, STANDARD_PLAIN, MPICH],
            Launcher::Torchrun | Launcher::Slurm => &[STANDARD, STANDARD_PLAIN, MPICH, OPEN_MPI],
        };
        for &(name, abi) in wanted {
            let in_folders = folders().into_iter().map(|folder| folder.join(name));
            let bare = std::iter::once(PathBuf::from(name));
            // A folder that the user lists goes before the system's choice.
            let listed = std::env::var_os("MAE_MPI_LIBS").is_some();
            let candidates: Vec<PathBuf> =
                if listed { in_folders.chain(bare).collect() } else { bare.chain(in_folders).collect() };
            if let Some((path, library)) = candidates.iter().find_map(|path| Some((path, load(path)?))) {
                return Self::of(library, abi, &path.display().to_string());
            }
        }
        let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
        let package = match launcher {
            Launcher::OpenMpi => "Open MPI (Debian: libopenmpi3, Fedora: openmpi)",
            _ => "MPICH (`pip install mpich`, Debian: libmpich12, Fedora: mpich)",
        };
        Err(Error::Launch(format!(
            "the launcher has started several processes, but no library of MPI was found ({}); install {package}, or name \
             the folder of the library in MAE_MPI_LIBS",
            names.join(", ")
        )))
    }

    fn of(library: Shared, abi: Abi, name: &str) -> Result<Self> {
        let address = |value: usize| value as *mut c_void;
        let fault = |error: libloading::Error| Error::Launch(format!("{name} is no library of MPI: {error}"));
        let symbol = |name: &str| -> Result<*mut c_void> {
            // SAFETY: only the address of the object is taken.
            let found = unsafe { library.get::<*mut c_void>(name.as_bytes()) }.map_err(fault)?;
            // SAFETY: as above.
            Ok(unsafe { found.try_as_raw_ptr() }.unwrap_or(std::ptr::null_mut()))
        };
        let opened = match abi {
            Abi::Standard => {
                let constants = [0x101, 0x247, 0x143].map(address);
                Self::Addresses(Functions::of(&library, name, constants, 2048).map_err(fault)?)
            }
            Abi::OpenMpi => {
                let objects = ["ompi_mpi_comm_world", "ompi_mpi_byte", "ompi_mpi_errors_return"];
                let constants = [symbol(objects[0])?, symbol(objects[1])?, symbol(objects[2])?];
                Self::Addresses(Functions::of(&library, name, constants, 2).map_err(fault)?)
            }
            Abi::Mpich => {
                let constants = [0x4400_0000, 0x4c00_010d, 0x5400_0001];
                Self::Numbers(Functions::of(&library, name, constants, 2).map_err(fault)?)
            }
        };
        // MPI stays until the process ends.
        std::mem::forget(library);
        Ok(opened)
    }

    /// Path of the library.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Addresses(functions) => &functions.name,
            Self::Numbers(functions) => &functions.name,
        }
    }

    /// Starts MPI.
    pub(super) fn start(&self) -> Result<()> {
        match self {
            Self::Addresses(functions) => functions.start(),
            Self::Numbers(functions) => functions.start(),
        }
        .map_err(Error::Launch)
    }

    /// Rank and number of ranks.
    pub(super) fn place(&self) -> Result<(usize, usize)> {
        match self {
            Self::Addresses(functions) => functions.place(),
            Self::Numbers(functions) => functions.place(),
        }
        .map_err(Error::Launch)
    }

    /// Sends the part `to[j]` of `send` to rank j and receives that of rank j in `from[j]`.
    pub(super) fn all_to_all(
        &self,
        send: &[u8],
        to: &[Range<usize>],
        receive: &mut [u8],
        from: &[Range<usize>],
    ) -> Outcome {
        match self {
            Self::Addresses(functions) => functions.all_to_all(send, to, receive, from),
            Self::Numbers(functions) => functions.all_to_all(send, to, receive, from),
        }
    }

    /// Receives the bytes of rank j in `places[j]`.
    pub(super) fn all_gather(&self, own: &[u8], all: &mut [u8], places: &[Range<usize>]) -> Outcome {
        match self {
            Self::Addresses(functions) => functions.all_gather(own, all, places),
            Self::Numbers(functions) => functions.all_gather(own, all, places),
        }
    }

    /// Gives the bytes of rank 0 to all.
    pub(super) fn broadcast(&self, bytes: &mut [u8]) -> Outcome {
        match self {
            Self::Addresses(functions) => functions.broadcast(bytes),
            Self::Numbers(functions) => functions.broadcast(bytes),
        }
    }

    /// Ends MPI, when all ranks do.
    pub(super) fn finish(&self) {
        // SAFETY: all ranks have agreed to end, and nothing is called afterwards.
        unsafe {
            match self {
                Self::Addresses(functions) => (functions.finalize)(),
                Self::Numbers(functions) => (functions.finalize)(),
            }
        };
    }
}

impl<H: Copy> Functions<H> {
    fn of(
        library: &Shared,
        name: &str,
        [world, byte, errors_return]: [H; 3],
        serialized: c_int,
    ) -> std::result::Result<Self, libloading::Error> {
        // SAFETY: the types are those of the standard's prototypes.
        unsafe {
            Ok(Self {
                name: name.to_owned(),
                world,
                byte,
                serialized,
                errors_return,
                init: *library.get(b"MPI_Init_thread")?,
                rank: *library.get(b"MPI_Comm_rank")?,
                size: *library.get(b"MPI_Comm_size")?,
                all_to_all: *library.get(b"MPI_Alltoallv")?,
                all_gather: *library.get(b"MPI_Allgatherv")?,
                broadcast: *library.get(b"MPI_Bcast")?,
                set_handler: *library.get(b"MPI_Comm_set_errhandler")?,
                finalize: *library.get(b"MPI_Finalize")?,
            })
        }
    }

    fn start(&self) -> Outcome {
        let mut provided = 0;
        // SAFETY: MPI allows null for the arguments of the program; `provided` is alive.
        done("MPI_Init_thread", unsafe {
            (self.init)(std::ptr::null_mut(), std::ptr::null_mut(), self.serialized, &mut provided)
        })?;
        if provided < self.serialized {
            return Err(format!("{} cannot be used from several threads in turn", self.name));
        }
        // SAFETY: MPI has been started.
        done("MPI_Comm_set_errhandler", unsafe { (self.set_handler)(self.world, self.errors_return) })
    }

    fn place(&self) -> std::result::Result<(usize, usize), String> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: both numbers are alive.
        done("MPI_Comm_rank", unsafe { (self.rank)(self.world, &mut rank) })?;
        // SAFETY: as above.
        done("MPI_Comm_size", unsafe { (self.size)(self.world, &mut size) })?;
        Ok((rank as usize, size as usize))
    }

    fn all_to_all(
        &self,
        send: &[u8],
        to: &[Range<usize>],
        receive: &mut [u8],
        from: &[Range<usize>],
    ) -> Outcome {
        let [to_counts, to_places] = counted(to, send.len())?;
        let [from_counts, from_places] = counted(from, receive.len())?;
        let mut nothing = [0];
        let receive = if receive.is_empty() { &mut nothing } else { receive };
        // SAFETY: every range lies in its buffer, and all of them outlive the call, which waits for the others.
        done("MPI_Alltoallv", unsafe {
            (self.all_to_all)(
                address(send),
                to_counts.as_ptr(),
                to_places.as_ptr(),
                self.byte,
                receive.as_mut_ptr().cast(),
                from_counts.as_ptr(),
                from_places.as_ptr(),
                self.byte,
                self.world,
            )
        })
    }

    fn all_gather(&self, own: &[u8], all: &mut [u8], places: &[Range<usize>]) -> Outcome {
        let [counts, starts] = counted(places, all.len())?;
        let count = c_int::try_from(own.len()).map_err(|_| too_long())?;
        let mut nothing = [0];
        let all = if all.is_empty() { &mut nothing } else { all };
        // SAFETY: as above; `own` is as long as the place of this rank.
        done("MPI_Allgatherv", unsafe {
            (self.all_gather)(
                address(own),
                count,
                self.byte,
                all.as_mut_ptr().cast(),
                counts.as_ptr(),
                starts.as_ptr(),
                self.byte,
                self.world,
            )
        })
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Outcome {
        let count = c_int::try_from(bytes.len()).map_err(|_| too_long())?;
        // SAFETY: the buffer outlives the call.
        done("MPI_Bcast", unsafe {
            (self.broadcast)(bytes.as_mut_ptr().cast(), count, self.byte, 0, self.world)
        })
    }
}

/// Address of bytes to send. That of no bytes could be any number, also one that has a meaning for MPI (`MPI_IN_PLACE`).
fn address(bytes: &[u8]) -> *const c_void {
    static NOTHING: [u8; 1] = [0];
    if bytes.is_empty() { NOTHING.as_ptr().cast() } else { bytes.as_ptr().cast() }
}

/// Lengths and starts of ranges that lie in a buffer of `length` bytes.
fn counted(ranges: &[Range<usize>], length: usize) -> std::result::Result<[Vec<c_int>; 2], String> {
    if ranges.iter().any(|range| range.end > length) || c_int::try_from(length).is_err() {
        return Err(too_long());
    }
    let numbers =
        |number: fn(&Range<usize>) -> usize| ranges.iter().map(|range| number(range) as c_int).collect();
    Ok([numbers(Range::len), numbers(|range| range.start)])
}

fn too_long() -> String {
    "a message is longer than MPI can send".to_owned()
}

fn done(what: &str, code: c_int) -> Outcome {
    if code == 0 { Ok(()) } else { Err(format!("{what} failed with code {code}")) }
}
