//! Fingerprints of data: FNV-1a, the same on every machine.

use std::io::{self, Write};

/// Hash of everything written to it.
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Of these bytes.
    pub fn of(bytes: impl IntoIterator<Item = u8>) -> Self {
        let mut hash = Self::default();
        hash.add(bytes);
        hash
    }

    /// Of all that was added.
    pub fn value(&self) -> u64 {
        self.0
    }

    fn add(&mut self, bytes: impl IntoIterator<Item = u8>) {
        self.0 = bytes
            .into_iter()
            .fold(self.0, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    }
}

impl Write for Fingerprint {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(bytes.iter().copied());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
