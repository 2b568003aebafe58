//! Text files, plain, gzip and zstd.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_data::{BadUtf8, LineReader};

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = LineReader::open(mae_fuzz::file("text", bytes), BadUtf8::Replace) else { return };
    while let Ok(Some(line)) = reader.next_line() {
        assert!(!line.contains('\n'));
    }
});
