//! Kernels: embedded text, compiled by NVRTC for the GPU at hand on first use, kept on disk.

use std::ffi::CString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use cudarc::nvrtc::{result as nvrtc, sys};

use super::kernel::{Constant, KernelFile};
use super::launch::{BLOCK_ROWS, BLOCK_RUNS};
use super::library;
use crate::rng::{MULTIPLIERS, WEYL};
use crate::tensor::NO_SENTENCE;
use crate::{Error, Result};

/// Put before every kernel file.
pub(super) const PRELUDE: &str = include_str!("prelude.cuh");

/// Constants of the prelude, for every kernel file.
pub(super) const PRELUDE_CONSTANTS: &[(&str, &dyn Constant)] = &[
    ("NO_SENTENCE", &NO_SENTENCE),
    ("BLOCK_ROWS", &BLOCK_ROWS),
    ("BLOCK_RUNS", &BLOCK_RUNS),
    ("MULTIPLIER_0", &MULTIPLIERS[0]),
    ("MULTIPLIER_1", &MULTIPLIERS[1]),
    ("WEYL_0", &WEYL[0]),
    ("WEYL_1", &WEYL[1]),
];

/// Kernel files that no op has in its room.
static SHARED: &[&KernelFile] = &[
    &super::sums::FILE,
    &super::together::FILE,
    &super::halves::FILE,
    &crate::optim::cuda::FILE,
    &super::product::plain::FILE,
];

/// Every kernel file.
pub(super) fn files() -> impl Iterator<Item = &'static KernelFile> {
    crate::ops::KERNELS.iter().chain(SHARED).copied()
}

/// A kernel file with the macros of one version of it.
#[derive(Clone)]
pub struct Unit {
    file: &'static KernelFile,
    /// Macros and their values; they go before constants of the same name.
    macros: Vec<(&'static str, u32)>,
}

impl PartialEq for Unit {
    fn eq(&self, other: &Self) -> bool {
        self.file.name == other.file.name && self.macros == other.macros
    }
}

impl Eq for Unit {}

impl Hash for Unit {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.file.name, &self.macros).hash(state);
    }
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.cu {:?}", self.file.name, self.macros)
    }
}

/// Kind of attention that a version of the attention kernels is for.
#[derive(Clone, Copy, Debug)]
pub struct AttentionKind {
    /// Width of a head.
    pub head: u32,
    /// Queries see no later keys.
    pub causal: bool,
    /// Probabilities are dropped.
    pub dropout: bool,
    /// Head weights: 0 none, 1 per sentence, 2 per row.
    pub weights: u32,
    /// For batches of long sentences.
    pub long: bool,
}

impl Unit {
    /// The only version of a file, or its version with the constants as Rust has them.
    pub(crate) fn of(file: &'static KernelFile) -> Self {
        Self { file, macros: Vec::new() }
    }

    /// A version of a file with other values of some constants.
    pub(crate) fn with(file: &'static KernelFile, macros: Vec<(&'static str, u32)>) -> Self {
        Self { file, macros }
    }

    /// The forward kernel of attention of this kind.
    pub fn attention_forward(kind: AttentionKind) -> Self {
        Self::attention(&crate::ops::attention::cuda::FORWARD, kind)
    }

    /// The backward kernels of attention of this kind.
    pub fn attention_backward(kind: AttentionKind) -> Self {
        Self::attention(&crate::ops::attention::cuda::BACKWARD, kind)
    }

    fn attention(file: &'static KernelFile, kind: AttentionKind) -> Self {
        let macros = vec![
            ("HEAD", kind.head),
            ("CAUSAL", u32::from(kind.causal)),
            ("DROPOUT", u32::from(kind.dropout)),
            ("WEIGHTS", kind.weights),
            ("LONG", u32::from(kind.long)),
        ];
        Self { file, macros }
    }

    /// Name of the file, without its extension.
    pub fn file(&self) -> &'static str {
        self.file.name
    }

    /// True if there is a version for each kind of attention.
    pub fn is_attention(&self) -> bool {
        self.file.name.starts_with("attention")
    }

    /// Every kernel file; the attention files, which have a version for each kind of attention, in the versions that
    /// the kernel suite needs: all kinds for one width of heads, and some kinds for others. In f32 the one width is
    /// small, because NVRTC takes long over the straight code of wide heads.
    pub fn every_file(bf16: bool) -> Vec<Self> {
        let (width, more) = match bf16 {
            true => (
                64,
                [
                    (5, true, true, 2, false),
                    (32, false, true, 1, false),
                    (128, true, false, 0, false),
                    (64, false, true, 1, true),
                    (128, true, true, 0, true),
                    (128, true, true, 2, true),
                    (128, false, false, 1, true),
                    (64, true, true, 2, true),
                    (64, true, false, 0, true),
                    // Not for Hopper.
                    (32, true, true, 2, true),
                ]
                .as_slice(),
            ),
            false => (
                16,
                [
                    (5, true, true, 2, false),
                    (64, false, true, 1, false),
                    (64, true, true, 2, false),
                    (16, false, true, 1, true),
                    (16, true, true, 0, true),
                    (16, true, true, 2, true),
                    (16, true, false, 0, true),
                    (16, false, false, 1, true),
                ]
                .as_slice(),
            ),
        };
        let kinds = (0..12).map(|i| (width, i & 1 != 0, i & 2 != 0, i / 4, false));
        let kinds: Vec<_> = kinds
            .chain(more.iter().copied())
            .map(|(head, causal, dropout, weights, long)| AttentionKind {
                head,
                causal,
                dropout,
                weights,
                long,
            })
            .collect();
        let versions = |file: &'static KernelFile| match Self::of(file) {
            unit if unit.is_attention() => kinds.iter().map(|&kind| Self::attention(file, kind)).collect(),
            unit => vec![unit],
        };
        files().flat_map(versions).collect()
    }

    /// Compiles for compute capability `major.minor`, without a GPU and without the disk: what the compiler has to say.
    /// Optimising would take two thirds of its time; it does so only for products of whole tiles, on whose optimised
    /// code it comments.
    pub fn check(&self, bf16: bool, capability: [i32; 2]) -> Result<String> {
        let mut options = self.options(bf16, capability);
        let can_hurry = compiler_version().is_some_and(|version| version >= [13, 0]);
        if can_hurry && !self.is_for_hopper(bf16, capability) {
            options.push("--Ofast-compile=max".into());
        }
        compile(self.file.name, &self.source(), &options).map(|(_, log)| log)
    }

    fn options(&self, bf16: bool, capability: [i32; 2]) -> Vec<String> {
        let mut options: Vec<String> =
            self.macros.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
        let is_given = |name: &str| self.macros.iter().any(|(given, _)| *given == name);
        let constants = PRELUDE_CONSTANTS.iter().chain(self.file.constants);
        options.extend(
            constants
                .filter(|(name, _)| !is_given(name))
                .map(|(name, value)| format!("-D{name}={}", value.text())),
        );
        let hopper = self.is_for_hopper(bf16, capability);
        let [major, minor] = capability;
        // Instructions of one architecture alone need its own name.
        let only = if hopper { "a" } else { "" };
        options.push(format!("-DBF16={}", u32::from(bf16)));
        options.push(format!("-DHOPPER={}", u32::from(hopper)));
        options.push(format!("--gpu-architecture=sm_{major}{minor}{only}"));
        options.push("--std=c++17".into());
        options
    }

    /// True for attention by the products of whole tiles that compute capability 9.0 has.
    pub(crate) fn is_for_hopper(&self, bf16: bool, capability: [i32; 2]) -> bool {
        let value = |wanted: &str| self.macros.iter().find(|(name, _)| *name == wanted).map(|&(_, v)| v);
        bf16 && capability == [9, 0] && value("LONG") == Some(1) && matches!(value("HEAD"), Some(64 | 128))
    }

    fn source(&self) -> String {
        let own = format!("{}.cu", self.file.name);
        let headers = self.file.headers.iter().copied();
        let parts = std::iter::once(("prelude.cuh", PRELUDE)).chain(headers).chain([(&*own, self.file.text)]);
        parts.map(|(name, text)| format!("#line 1 \"{name}\"\n{text}\n")).collect()
    }
}

/// The machine code of `unit` for compute capability `major.minor`, from the disk or from NVRTC.
pub(crate) fn machine_code(unit: &Unit, bf16: bool, capability: [i32; 2]) -> Result<Vec<u8>> {
    library::require(&["libnvrtc"])?;
    let mut options = unit.options(bf16, capability);
    options.push("-lineinfo".into());
    let source = unit.source();
    let kept = cache_file(&source, &options);
    if let Some(code) =
        kept.as_ref().and_then(|path| std::fs::read(path).ok()).filter(|code| !code.is_empty())
    {
        return Ok(code);
    }
    let (code, _) = compile(unit.file.name, &source, &options)?;
    if let Some(path) = kept {
        keep(&path, &code);
    }
    Ok(code)
}

/// The code and the log.
fn compile(file: &str, source: &str, options: &[String]) -> Result<(Vec<u8>, String)> {
    library::require(&["libnvrtc"])?;
    let name = CString::new(format!("{file}.cu")).expect("file names hold no NUL");
    let text = CString::new(source).expect("sources hold no NUL");
    let fault = |what: &str| Error::Gpu(format!("{file}.cu: {what}"));
    let program = nvrtc::create_program(&text, Some(&name)).map_err(|e| fault(&e.to_string()))?;
    // SAFETY: `program` was just made and is destroyed below, after its last use.
    let compiled = unsafe { nvrtc::compile_program(program, options) };
    let code = match compiled {
        // SAFETY: as above; a failed compilation has a log.
        Err(error) => Err(fault(&format!("{error}\n{}", unsafe { log(program) }))),
        Ok(()) => {
            let mut size = 0;
            // SAFETY: the compilation succeeded; the buffer has the size that NVRTC asked for.
            let status = unsafe { sys::nvrtcGetCUBINSize(program, &mut size) }.result();
            let mut code = vec![0u8; size];
            let got = status.and_then(|()| {
                // SAFETY: as above.
                unsafe { sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()) }.result()
            });
            // SAFETY: as above.
            got.map(|()| (code, unsafe { log(program) })).map_err(|e| fault(&e.to_string()))
        }
    };
    // SAFETY: not used after this.
    unsafe { nvrtc::destroy_program(program) }.ok();
    code
}

/// # Safety
///
/// `program` must be alive.
unsafe fn log(program: sys::nvrtcProgram) -> String {
    // SAFETY: the caller's promise.
    let raw = unsafe { nvrtc::get_program_log(program) }.unwrap_or_default();
    let bytes: Vec<u8> = raw.into_iter().map(|c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// NVRTC's version, `[major, minor]`.
pub fn compiler_version() -> Option<[i32; 2]> {
    library::require(&["libnvrtc"]).ok()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both are written before the call returns.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().ok()?;
    Some([major, minor])
}

/// The folder of compiled kernels: `MAE_CACHE`, or `mae` in the user's cache folder.
pub fn cache_folder() -> Option<PathBuf> {
    let own = std::env::var_os("MAE_CACHE").map(PathBuf::from);
    let user = || std::env::var_os("XDG_CACHE_HOME").map(|cache| PathBuf::from(cache).join("mae"));
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/mae"));
    own.or_else(user).or_else(home)
}

/// Named after everything that the code depends on.
fn cache_file(source: &str, options: &[String]) -> Option<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (source, options, compiler_version(), env!("CARGO_PKG_VERSION")).hash(&mut hasher);
    Some(cache_folder()?.join(format!("{:016x}.cubin", hasher.finish())))
}

/// Best effort: a cache that cannot be written costs time, nothing else.
fn keep(path: &std::path::Path, code: &[u8]) {
    let aside = path.with_extension(format!("{}.tmp", std::process::id()));
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    if folder
        .and_then(|()| std::fs::write(&aside, code))
        .and_then(|()| std::fs::rename(&aside, path))
        .is_err()
    {
        std::fs::remove_file(&aside).ok();
    }
}
