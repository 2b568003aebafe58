//! Files for readers that take paths. They are small: name a memory file system in `TMPDIR`.

use std::path::PathBuf;

/// A folder of this process.
pub fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("mae-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written to");
    folder
}

/// A file of this name with these bytes.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("the temporary folder can be written to");
    path
}
