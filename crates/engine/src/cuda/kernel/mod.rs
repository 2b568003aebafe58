//! Kernels as types. A kernel is declared once, beside its launcher, with its parameters by name, in the kernel's order
//! and with the kernel's types; a call is a struct with these fields ([`kernels!`]). A test reads every signature in the
//! kernel files and compares it with the declaration, so that neither can change alone (`signatures`).

#[cfg(test)]
mod signatures;

use std::ffi::c_void;
use std::fmt;

/// A file of kernels with all that is needed to compile it.
pub(crate) struct KernelFile {
    /// Name of the file without its extension.
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    /// Files that are put before it: name and text.
    pub(crate) headers: &'static [(&'static str, &'static str)],
    /// Constants that Rust defines for it, passed as macros.
    pub(crate) constants: &'static [(&'static str, &'static dyn Constant)],
    /// Every kernel of the file.
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of signatures reads it"))]
    pub(crate) kernels: &'static [Signature],
}

/// Name and parameters of a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "the test of signatures reads it"))]
    pub(crate) parameters: &'static [Field],
}

/// A parameter of a kernel or a field of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) ctype: CType,
}

/// A type of CUDA C++.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CType {
    /// A number.
    Plain(&'static str),
    /// `const T*`.
    Const(&'static str),
    /// `T*`.
    Mut(&'static str),
    /// `T name[length]`.
    Array(&'static CType, usize),
    /// A struct with these fields.
    Struct(&'static str, &'static [Field]),
}

impl fmt::Display for CType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(name) | Self::Struct(name, _) => f.write_str(name),
            Self::Const(name) => write!(f, "const {name}*"),
            Self::Mut(name) => write!(f, "{name}*"),
            Self::Array(element, length) => write!(f, "{element}[{length}]"),
        }
    }
}

/// A type that a kernel takes by value: numbers, `*const T` and `*mut T`, arrays, structs of [`kernel_struct!`].
/// Pointers are passed as [`Ptr`](super::memory::Ptr), addresses in device memory; everything else as it is.
///
/// # Safety
///
/// The value that is passed must have the layout of `C`.
// SAFETY: the declaration does nothing; implementations come from the macros of this file, which keep to it.
pub(crate) unsafe trait CudaType {
    const C: CType;
}

/// A type that pointers of kernels point to.
pub(crate) trait Pointee {
    const NAME: &'static str;
}

/// An activation, `act` of the kernels: bfloat16 or float, as the device is opened.
pub(crate) enum Act {}

/// Two `u32` that are read as one.
pub(crate) enum Pair {}

macro_rules! pointees {
    ($($rust:ty = $c:literal),*) => { $(impl Pointee for $rust { const NAME: &'static str = $c; })* };
}

pointees!(Act = "act", f32 = "float", f64 = "double", u16 = "u16", u32 = "u32", u64 = "u64", Pair = "uint2");

macro_rules! numbers {
    ($($rust:ty = $c:literal),*) => { $(
        // SAFETY: the same number of the same size.
        unsafe impl CudaType for $rust {
            const C: CType = CType::Plain($c);
        }
    )* };
}

numbers!(u32 = "u32", u64 = "u64", f32 = "float");

// SAFETY: an address of 64 bits.
unsafe impl<T: Pointee> CudaType for *const T {
    const C: CType = CType::Const(T::NAME);
}

// SAFETY: as above.
unsafe impl<T: Pointee> CudaType for *mut T {
    const C: CType = CType::Mut(T::NAME);
}

// SAFETY: arrays are laid out alike.
unsafe impl<T: CudaType, const N: usize> CudaType for [T; N] {
    const C: CType = CType::Array(&T::C, N);
}

/// A constant that Rust and kernels share: Rust defines it, kernels get it as a macro and do not compile without it.
pub(crate) trait Constant: Sync {
    /// The value in CUDA C++.
    fn text(&self) -> String;
}

/// An `int`.
impl Constant for usize {
    fn text(&self) -> String {
        self.to_string()
    }
}

/// An `unsigned int`.
impl Constant for u32 {
    fn text(&self) -> String {
        format!("{self}u")
    }
}

/// A `float`, with the digits that give the same bits again.
impl Constant for f32 {
    fn text(&self) -> String {
        format!("{self:e}f")
    }
}

/// A call of a kernel: its arguments. Made by [`kernels!`] alone.
///
/// # Safety
///
/// `with_pointers` must pass a pointer to each argument, in the order and with the types of the kernel `SIGNATURE`
/// names in `FILE`.
// SAFETY: the declaration does nothing; implementations come from `kernels!`, which lists each argument once.
pub(crate) unsafe trait Kernel {
    const FILE: &'static KernelFile;
    const SIGNATURE: Signature;

    /// Calls `launch` with the addresses of all arguments.
    fn with_pointers<R>(&self, launch: impl FnOnce(&mut [*mut c_void]) -> R) -> R;
}

/// Declares the kernels of one file: a static [`KernelFile`], and for each kernel a struct with its parameters.
///
/// ```text
/// kernels! {
///     static FILE = "pool" at "pool.cu", constants [COLUMNS, THREADS];
///
///     /// Means of sentences.
///     struct SegmentMeanForward = segment_mean_forward {
///         x: *const Act,
///         segments: Segments,
///         y: *mut Act,
///         cols: u32,
///     }
///     /// A kernel with the parameters of another.
///     struct Twin = another_kernel(SegmentMeanForward);
/// }
/// ```
///
/// Constants are those of the module; a kernel file may use them by their names. `headers &[("a.cuh", TEXT)]` after the
/// constants puts other files before this one.
macro_rules! kernels {
    (
        static $FILE:ident = $name:literal at $path:literal, constants [$($constant:ident),* $(,)?]
            $(, headers $headers:expr)?;
        $($(#[$doc:meta])* $vis:vis struct $Kernel:ident = $kernel:ident $parameters:tt $(;)?)*
    ) => {
        #[doc = concat!("Kernels of `", $name, ".cu`.")]
        pub(crate) static $FILE: $crate::cuda::kernel::KernelFile = $crate::cuda::kernel::KernelFile {
            name: $name,
            text: include_str!($path),
            headers: {
                const GIVEN: &[&[(&str, &str)]] = &[$($headers,)? &[]];
                GIVEN[0]
            },
            constants: &[$((stringify!($constant), &$constant)),*],
            kernels: &[$(<$Kernel as $crate::cuda::kernel::Kernel>::SIGNATURE),*],
        };
        $($crate::cuda::kernel::kernels! { @kernel $FILE $(#[$doc])* $vis $Kernel $kernel $parameters })*
    };
    (@kernel $FILE:ident $(#[$doc:meta])* $vis:vis $Kernel:ident $kernel:ident
        { $($field:ident: $(*$pointer:ident)? $($type:ident)::+),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        $vis struct $Kernel {
            $(pub(crate) $field: $crate::cuda::kernel::passed!($(*$pointer)? $($type)::+)),*
        }

        // SAFETY: one pointer per field, in their order; the test of signatures compares names, order and types with
        // the kernel's.
        unsafe impl $crate::cuda::kernel::Kernel for $Kernel {
            const FILE: &'static $crate::cuda::kernel::KernelFile = &$FILE;
            const SIGNATURE: $crate::cuda::kernel::Signature = $crate::cuda::kernel::Signature {
                name: stringify!($kernel),
                parameters: &[$($crate::cuda::kernel::Field {
                    name: stringify!($field),
                    ctype: <$(*$pointer)? $($type)::+ as $crate::cuda::kernel::CudaType>::C,
                }),*],
            };

            fn with_pointers<R>(&self, launch: impl FnOnce(&mut [*mut std::ffi::c_void]) -> R) -> R {
                launch(&mut [$((&raw const self.$field).cast_mut().cast()),*])
            }
        }
    };
    (@kernel $FILE:ident $(#[$doc:meta])* $vis:vis $Kernel:ident $kernel:ident ($Twin:ident)) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        $vis struct $Kernel(pub(crate) $Twin);

        // SAFETY: the arguments are those of the twin; the test of signatures compares both kernels with them.
        unsafe impl $crate::cuda::kernel::Kernel for $Kernel {
            const FILE: &'static $crate::cuda::kernel::KernelFile = &$FILE;
            const SIGNATURE: $crate::cuda::kernel::Signature = $crate::cuda::kernel::Signature {
                name: stringify!($kernel),
                ..<$Twin as $crate::cuda::kernel::Kernel>::SIGNATURE
            };

            fn with_pointers<R>(&self, launch: impl FnOnce(&mut [*mut std::ffi::c_void]) -> R) -> R {
                $crate::cuda::kernel::Kernel::with_pointers(&self.0, launch)
            }
        }
    };
}

/// The type in Rust of a value that a kernel takes. (A macro and no associated type: rustc 1.95 stumbles over those where
/// closures capture single fields.)
macro_rules! passed {
    (*$pointer:ident $($type:ident)::+) => {
        $crate::cuda::memory::Ptr
    };
    ([*$pointer:ident $($type:ident)::+; $length:expr]) => {
        [$crate::cuda::memory::Ptr; $length]
    };
    ([$type:ty; $length:expr]) => {
        [$type; $length]
    };
    ($type:ty) => {
        $type
    };
}

/// Declares a struct that kernels take by value, with the name and the fields it has there:
/// `kernel_struct! { struct Segments { starts: *const u32, rows: u32 } }`.
macro_rules! kernel_struct {
    (
        $(#[$doc:meta])*
        $vis:vis struct $Name:ident {
            $($field:ident: $(*$pointer:ident)? $($type:ident)::* $([$($array:tt)*])?),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        $vis struct $Name {
            $(pub(crate) $field:
                $crate::cuda::kernel::passed!($(*$pointer)? $($type)::* $([$($array)*])?)),*
        }

        // SAFETY: `repr(C)`; the test of signatures compares the fields with those in CUDA.
        unsafe impl $crate::cuda::kernel::CudaType for $Name {
            const C: $crate::cuda::kernel::CType = $crate::cuda::kernel::CType::Struct(
                stringify!($Name),
                &[$($crate::cuda::kernel::Field {
                    name: stringify!($field),
                    ctype: <$(*$pointer)? $($type)::* $([$($array)*])? as $crate::cuda::kernel::CudaType>::C,
                }),*],
            );
        }
    };
}

pub(crate) use {kernel_struct, kernels, passed};
