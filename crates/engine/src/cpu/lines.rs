//! Memory of packed matrices: side by side, and in large pages where the system has them. A step of a search reads all
//! matrices one after the other; with pages of 4 KB a processor looks up thousands of addresses for it, and where those
//! pages lie decides what its caches keep.

use std::alloc::{Layout, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapMut;

/// Bytes of a large page.
const PAGE: usize = 2 << 20;
/// Bytes that are mapped at a time, unless a matrix needs more. They are given back when the last matrix in them goes.
const CHUNK: usize = 4 * PAGE;
/// Bytes of a line of the cache, where every matrix begins.
const ALIGNMENT: usize = 64;

/// Values that may have any bits.
///
/// # Safety
///
/// Zeros are a value, and so are all other bits; its alignment is at most that of a line of the cache.
pub(crate) unsafe trait Plain: Copy {}

/// Lines of a matrix.
pub(crate) struct Lines<T> {
    first: NonNull<T>,
    len: usize,
    /// What the lines lie in.
    _chunk: Option<Arc<MmapMut>>,
}

// SAFETY: the lines belong to one owner, as those of a `Vec` do: chunks are handed out in parts that do not overlap.
unsafe impl<T: Send> Send for Lines<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Lines<T> {}

impl<T: Plain> Lines<T> {
    /// Zeros.
    pub(crate) fn zeros(len: usize) -> Self {
        const { assert!(align_of::<T>() <= ALIGNMENT) };
        let layout = Layout::array::<T>(len).expect("a matrix is smaller than the address space");
        if layout.size() == 0 {
            return Self { first: NonNull::dangling(), len, _chunk: None };
        }
        let (first, chunk) = PLACE.with_borrow_mut(|place| place.take(layout));
        Self { first: first.cast(), len, _chunk: Some(chunk) }
    }
}

impl<T> Deref for Lines<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: so many values lie there, of any bits, as long as the chunk does.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Lines<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; nobody else has these lines.
        unsafe { std::slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

impl<T: Plain> Clone for Lines<T> {
    fn clone(&self) -> Self {
        let mut lines = Self::zeros(self.len);
        lines.copy_from_slice(self);
        lines
    }
}

impl<T: Plain> FromIterator<T> for Lines<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let values: Vec<T> = values.into_iter().collect();
        let mut lines = Self::zeros(values.len());
        lines.copy_from_slice(&values);
        lines
    }
}

thread_local! {
    static PLACE: RefCell<Place> = const { RefCell::new(Place { chunk: None, free: std::ptr::null_mut(), left: 0 }) };
}

/// Where this thread puts the next matrix.
struct Place {
    chunk: Option<Arc<MmapMut>>,
    free: *mut u8,
    /// Bytes from there to the end of the chunk.
    left: usize,
}

impl Place {
    /// Memory of zeros that nobody else has, and the chunk that it is part of.
    fn take(&mut self, layout: Layout) -> (NonNull<u8>, Arc<MmapMut>) {
        let bytes = layout.size().next_multiple_of(ALIGNMENT);
        if bytes > self.left {
            let mut chunk = mapped(bytes.next_multiple_of(PAGE).max(CHUNK), layout);
            self.free = first_page(&mut chunk);
            self.left = bytes.next_multiple_of(PAGE).max(CHUNK);
            self.chunk = Some(Arc::new(chunk));
        }
        let (first, chunk) = (self.free, self.chunk.as_ref().expect("just mapped, or with room").clone());
        self.free = first.wrapping_add(bytes);
        self.left -= bytes;
        (NonNull::new(first).expect("maps do not begin at 0"), chunk)
    }
}

/// Pages of zeros, and one more, so that the first can begin where large pages do.
fn mapped(bytes: usize, layout: Layout) -> MmapMut {
    let Ok(chunk) = MmapMut::map_anon(bytes + PAGE) else { handle_alloc_error(layout) };
    // A system without large pages refuses, and its pages will do.
    #[cfg(target_os = "linux")]
    chunk.advise(memmap2::Advice::HugePage).ok();
    chunk
}

fn first_page(chunk: &mut MmapMut) -> *mut u8 {
    let begin = chunk.as_mut_ptr();
    begin.wrapping_add(begin.align_offset(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: a number of any bits.
    unsafe impl Plain for u64 {}

    #[test]
    fn lines_are_zeros_of_their_own() {
        let sizes = [0, 1, 7, 8, 1000, CHUNK / 8 - 3, 5, CHUNK / 8 + 1, 2, 3 * CHUNK / 8, 1 << 16];
        let mut all: Vec<Lines<u64>> = sizes.iter().map(|len| Lines::zeros(*len)).collect();
        for (i, lines) in all.iter_mut().enumerate() {
            assert!(lines.len() == sizes[i] && lines.iter().all(|value| *value == 0));
            assert!(lines.is_empty() || lines.as_ptr().cast::<u8>().align_offset(ALIGNMENT) == 0);
            lines.fill(i as u64);
        }
        let copy = all[4].clone();
        // What is left is not touched by what goes, nor by what comes.
        all.truncate(9);
        let new = Lines::<u64>::zeros(1 << 18);
        assert!(new.iter().all(|value| *value == 0));
        for (i, lines) in all.iter().enumerate() {
            assert!(lines.iter().all(|value| *value == i as u64), "{i}");
        }
        assert!(copy.iter().all(|value| *value == 4) && copy.len() == 1000);
    }

    #[test]
    fn lines_are_used_and_dropped_by_other_threads() {
        let mut lines: Lines<u64> = (0..100_000).collect();
        let lines = std::thread::spawn(move || {
            lines.iter_mut().for_each(|value| *value += 1);
            lines
        });
        assert!(lines.join().unwrap().iter().copied().eq(1..100_001));
    }
}
