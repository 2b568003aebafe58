//! Permission to use AMX, and the tile configuration of one thread.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

/// True when the processor has AMX-BF16 and AVX-512 and the kernel lets this process use tiles.
pub(in super::super) fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| has_instructions() && request_permission())
}

fn has_instructions() -> bool {
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    // The standard library detects AVX-512 on stable Rust, but not yet AMX.
    is_x86_feature_detected!("avx512f")
        && __cpuid(0).eax >= 7
        && __cpuid_count(7, 0).edx & (AMX_BF16 | AMX_TILE) == AMX_BF16 | AMX_TILE
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

/// All eight tiles at their full size of 16 rows of 64 bytes.
static FULL_TILES: TileConfig = {
    let mut config =
        TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    let mut tile = 0;
    while tile < 8 {
        config.row_bytes[tile] = 64;
        config.rows[tile] = 16;
        tile += 1;
    }
    config
};

/// Proof that the tiles of the current thread are configured; releases them when dropped.
///
/// A raw pointer keeps it from being sent to another thread, whose tiles would not be configured.
pub(super) struct ConfiguredTiles(std::marker::PhantomData<*const ()>);

impl ConfiguredTiles {
    pub(super) fn new() -> Self {
        assert!(available(), "AMX is not available");
        // SAFETY: `available` has just shown that AMX instructions exist and are permitted, and the operand is
        // a valid 64-byte configuration of palette 1.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &FULL_TILES, options(nostack, preserves_flags, readonly));
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
