//! What the processor tells of its caches.

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::OnceLock;

/// Bytes of a first level that has room for weights that are asked for ahead of their use: Zen 5 has so many, Zen 4 32 KB.
const LARGE: usize = 48 << 10;
/// Kind and level of a cache, in the lowest bits of its entry.
const DATA_OF_LEVEL_1: u32 = 1 << 5 | 1;
/// Entries of a page that are read at most.
const MOST_CACHES: u32 = 8;

/// True if the first level has room for weights that are asked for ahead of their use.
pub(super) fn has_large_first_level() -> bool {
    static LARGE_ONE: OnceLock<bool> = OnceLock::new();
    *LARGE_ONE.get_or_init(|| first_level() >= LARGE)
}

/// Bytes of the first level of the cache for data; 0 where the processor does not tell.
fn first_level() -> usize {
    // Intel's page of caches, and AMD's, which has the same form; an entry of kind 0 ends the list.
    let pages = [(0, 4), (0x8000_0000, 0x8000_001d)];
    let pages = pages.into_iter().filter(|&(first, page)| __cpuid(first).eax >= page);
    let caches = pages.flat_map(|(_, page)| {
        (0..MOST_CACHES).map(move |i| __cpuid_count(page, i)).take_while(|c| c.eax & 0x1f != 0)
    });
    let sizes = caches.filter(|cache| cache.eax & 0xff == DATA_OF_LEVEL_1).map(|cache| {
        let [ways, parts, line] =
            [cache.ebx >> 22, cache.ebx >> 12 & 0x3ff, cache.ebx & 0xfff].map(|n| n as usize + 1);
        ways * parts * line * (cache.ecx as usize + 1)
    });
    sizes.max().unwrap_or(0)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_first_level_is_that_which_the_system_names() {
        let caches = std::path::Path::new("/sys/devices/system/cpu/cpu0/cache");
        let named = std::fs::read_dir(caches).into_iter().flatten().flatten().find_map(|entry| {
            let read = |file| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            let first = read("level").trim() == "1" && read("type").trim() == "Data";
            first.then(|| read("size").trim().strip_suffix('K')?.parse::<usize>().ok()).flatten()
        });
        // Some containers hide it.
        if let Some(named) = named {
            assert_eq!(first_level(), named << 10);
        }
    }
}
