//! Permission to use AMX, and the tile configuration of one thread.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

const AMX_BF16: u32 = 1 << 22;
const AMX_TILE: u32 = 1 << 24;
const AMX_INT8: u32 = 1 << 25;

/// True when the processor has AMX-BF16 and AVX-512 and the kernel lets this process use tiles.
pub(in super::super) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| has(AMX_BF16) && permitted())
}

/// The same with AMX-INT8.
pub(in crate::cpu) fn has_int8() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| has(AMX_INT8) && permitted())
}

/// True if the processor has tiles, AVX-512 and this way to multiply tiles.
fn has(products: u32) -> bool {
    // The standard library detects AVX-512 on stable Rust, but not yet AMX.
    is_x86_feature_detected!("avx512f")
        && __cpuid(0).eax >= 7
        && __cpuid_count(7, 0).edx & (products | AMX_TILE) == products | AMX_TILE
}

/// True if Linux lets this process use tiles; asked once.
fn permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(request_permission)
}

/// Asks Linux for the large tile registers, for every thread of this process.
///
/// Linux says no where the feature is switched off in XCR0, is unknown to it, or where a thread's signal stack
/// is too small, so its answer is all the operating system support there is to check.
fn request_permission() -> bool {
    const SYS_ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XFEATURE_XTILEDATA: i64 = 18;
    let status: i64;
    // SAFETY: this system call takes two integers, touches no memory of ours, and clobbers only the registers
    // every x86-64 Linux system call does.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") SYS_ARCH_PRCTL => status,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    status == 0
}

/// The memory operand of `ldtilecfg`.
#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    /// All eight tiles with rows of 64 bytes, the first `SHORT` with `rows` of them, the others with 16.
    const fn new(rows: u8) -> Self {
        let mut config =
            TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut tile = 0;
        while tile < 8 {
            config.row_bytes[tile] = 64;
            config.rows[tile] = if tile < SHORT { rows } else { 16 };
            tile += 1;
        }
        config
    }
}

/// Tiles that may have fewer rows: sums and the left operand of products of few rows.
const SHORT: usize = 5;

/// All tiles at their full size.
static FULL_TILES: TileConfig = TileConfig::new(16);

/// Proof that the tiles of the current thread are configured; releases them when dropped.
///
/// A raw pointer keeps it from being sent to another thread, whose tiles would not be configured.
pub(in crate::cpu) struct ConfiguredTiles(std::marker::PhantomData<*const ()>);

impl ConfiguredTiles {
    pub(super) fn new() -> Self {
        Self::load(&FULL_TILES)
    }

    /// Tiles 0 to 4 have `rows` rows, from 1 to 16; the others have 16.
    pub(in crate::cpu) fn of_rows(rows: usize) -> Self {
        assert!((1..=16).contains(&rows), "a tile of {rows} rows");
        Self::load(&TileConfig::new(rows as u8))
    }

    fn load(config: &TileConfig) -> Self {
        assert!(available() || has_int8(), "AMX is not available");
        // SAFETY: tiles exist and are permitted, as was just asked, and the operand is a valid 64-byte configuration of
        // palette 1.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) config, options(nostack, preserves_flags, readonly));
        }
        Self(std::marker::PhantomData)
    }
}

impl Drop for ConfiguredTiles {
    fn drop(&mut self) {
        // SAFETY: AMX is available, or `new` would not have returned; tile contents are dead outside the
        // kernel's own asm block, so no one misses them.
        unsafe {
            asm!("tilerelease", options(nostack, preserves_flags, nomem));
        }
    }
}
