//! CUDA's libraries, found at run time. Nothing of CUDA is needed to build this program.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::{Error, Result};

/// A shared library that the program uses if it is there.
#[derive(Clone, Debug)]
pub struct Library {
    /// `libnvrtc` and the like.
    pub name: &'static str,
    /// Purpose.
    pub purpose: &'static str,
    /// Path where it was found; a bare name was found by the system's loader.
    pub path: Option<PathBuf>,
}

/// Stem, purpose, and versions that are looked for besides the plain name.
const WANTED: [(&str, &str, &[&str]); 4] = [
    ("libcuda", "the driver", &["1"]),
    // Before NVRTC itself, which opens it by its bare name.
    (
        "libnvrtc-builtins",
        "part of the kernel compiler",
        &["13.0", "13.1", "13.2", "13.3", "13.4", "12.8", "12.9"],
    ),
    ("libnvrtc", "compiles the kernels", &["13", "12"]),
    ("libcublasLt", "matrix products", &["13", "12"]),
];

/// Folders that are searched after the system's own, `MAE_CUDA_LIBS` (separated by colons) first.
pub(crate) fn folders() -> Vec<PathBuf> {
    let listed = std::env::var_os("MAE_CUDA_LIBS");
    let mut folders: Vec<PathBuf> = listed.iter().flat_map(std::env::split_paths).collect();
    for variable in ["CUDA_HOME", "CUDA_PATH"] {
        folders.extend(std::env::var_os(variable).map(|root| PathBuf::from(root).join("lib64")));
    }
    folders
        .extend(["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/opt/cuda/lib64"].map(PathBuf::from));
    folders
}

/// All wanted libraries, opened once. An opened library stays open, so that whoever asks for it later by its bare
/// name gets it.
pub fn libraries() -> &'static [Library] {
    static FOUND: OnceLock<Vec<Library>> = OnceLock::new();
    FOUND.get_or_init(|| {
        WANTED
            .iter()
            .map(|&(name, purpose, versions)| Library { name, purpose, path: open(name, versions) })
            .collect()
    })
}

fn open(name: &str, versions: &[&str]) -> Option<PathBuf> {
    let names: Vec<String> =
        versions.iter().map(|version| format!("{name}.so.{version}")).chain([format!("{name}.so")]).collect();
    let bare = names.iter().map(PathBuf::from);
    let in_folders = folders().into_iter().flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    // A folder that the user lists goes before the system's choice.
    let listed = std::env::var_os("MAE_CUDA_LIBS").is_some();
    let candidates: Vec<PathBuf> =
        if listed { in_folders.chain(bare).collect() } else { bare.chain(in_folders).collect() };
    candidates.into_iter().find(|path| load(path))
}

/// Loads a library for good; `false` if that is not possible.
#[cfg(unix)]
fn load(path: &std::path::Path) -> bool {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: these are NVIDIA's libraries; loading them runs their initialisers, which is what they are for.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map(std::mem::forget).is_ok()
}

/// GPUs are used on Linux only.
#[cfg(not(unix))]
fn load(_path: &std::path::Path) -> bool {
    false
}

/// An error that names what is missing.
pub(crate) fn require(names: &[&str]) -> Result<()> {
    let missing: Vec<String> = libraries()
        .iter()
        .filter(|library| names.contains(&library.name) && library.path.is_none())
        .map(|library| format!("{} ({})", library.name, library.purpose))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Error::NoGpu(format!(
        "{} not found; install CUDA 13, or name the folder in MAE_CUDA_LIBS",
        missing.join(" and ")
    )))
}
