//! The order in which a thread reads matrices for a few rows: a search reads the same ones in every step, so what comes
//! after a matrix is known, and its first lines are asked for before it begins.

use std::cell::RefCell;

use super::LINE;
use super::gemm::streamed::kernel::MAX_ROWS;

/// Strips of a matrix that are read side by side: what they are asked for by, and never read through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Strips {
    /// Address of the first one.
    pub(super) first: *const u8,
    /// Bytes from one to the next.
    pub(super) apart: usize,
    /// Bytes from a line of one to its next.
    pub(super) step: usize,
}

// SAFETY: an address that nothing is read from.
unsafe impl Send for Strips {}
// SAFETY: as above.
unsafe impl Sync for Strips {}

impl Strips {
    /// Strips of so many values each, one after the other.
    pub(super) fn new<T>(first: *const T, values: usize) -> Self {
        Self { first: first.cast(), apart: values * size_of::<T>(), step: LINE }
    }

    /// So many bytes further on.
    pub(super) fn moved(self, bytes: isize) -> Self {
        Self { first: self.first.wrapping_offset(bytes), ..self }
    }
}

/// What a product of `m` rows with these strips asks for at its end: the strips that this thread read after them the last
/// time. `None` where that is not known, and where threads share a product.
pub(super) fn after(m: usize, strips: Strips) -> Option<Strips> {
    let alone = m <= MAX_ROWS && rayon::current_num_threads() == 1;
    alone.then(|| ORDER.with_borrow_mut(|order| order.read(strips))).flatten()
}

/// Matrices that are remembered. A search reads some hundreds; more are new ones all the time, such as those of shortlists.
const MOST: usize = 1024;

thread_local! {
    static ORDER: RefCell<Order> = RefCell::default();
}

/// Matrices in the order in which they were first read.
#[derive(Default)]
struct Order {
    known: Vec<Known>,
    /// Place of the one that was read last.
    last: Option<usize>,
}

struct Known {
    strips: Strips,
    /// Place of the one that was read after it the last time; at first that after its own.
    next: usize,
}

impl Order {
    /// These strips are read now; gives those that came after them the last time.
    fn read(&mut self, strips: Strips) -> Option<Strips> {
        let place = self.place(strips);
        if let Some(last) = self.last {
            self.known[last].next = place;
        }
        self.last = Some(place);
        self.known.get(self.known[place].next).map(|next| next.strips)
    }

    /// Where these strips are, or are put now.
    fn place(&mut self, strips: Strips) -> usize {
        let is_here = |known: &Known| known.strips == strips;
        let expected = self.last.map(|last| self.known[last].next);
        if let Some(place) = expected.filter(|&place| self.known.get(place).is_some_and(is_here)) {
            return place;
        }
        if let Some(place) = self.known.iter().position(is_here) {
            return place;
        }
        if self.known.len() == MOST {
            *self = Self::default();
        }
        let next = self.known.len() + 1;
        self.known.push(Known { strips, next });
        next - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strips(number: usize) -> Strips {
        Strips::new(std::ptr::without_provenance::<u64>(8 * number), 100)
    }

    #[test]
    fn what_came_next_is_expected_next() {
        let mut order = Order::default();
        let mut read = |number| order.read(strips(number)).map(|next| next.first.addr() / 8);
        assert_eq!([1, 2, 3].map(&mut read), [None; 3]);
        assert_eq!([1, 2, 3].map(&mut read), [Some(2), Some(3), Some(1)]);
        // Another matrix comes between them, and then every time.
        assert_eq!([1, 4, 2, 3].map(&mut read), [Some(2), None, Some(3), Some(1)]);
        assert_eq!([1, 4, 2, 3].map(&mut read), [Some(4), Some(2), Some(3), Some(1)]);
    }

    #[test]
    fn memory_does_not_grow_without_end() {
        let mut order = Order::default();
        for number in 0..3 * MOST + 5 {
            assert_eq!(order.read(strips(number)), None, "{number}");
        }
        assert_eq!(order.known.len(), 5);
        assert_eq!(order.read(strips(3 * MOST + 1)).map(|next| next.first), Some(strips(3 * MOST + 2).first));
    }

    #[test]
    fn threads_that_share_products_expect_nothing() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let read = || [1, 2, 1].map(|number| after(1, strips(number)));
        assert!(pool.install(read).iter().all(Option::is_none));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let read = || [(1, 1), (1, 2), (1, 1), (MAX_ROWS + 1, 1)].map(|(m, number)| after(m, strips(number)));
        assert!(pool.install(read).into_iter().eq([None, None, Some(strips(2)), None]));
    }
}
