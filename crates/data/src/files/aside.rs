//! Names of files and folders that are not complete yet: `name` is written as `name.5f3a09c1.tmp` beside it, with
//! eight random digits. A name that is taken is never written to. As long as its process lives, what lies aside is
//! locked; what is not locked was left by a process that ended, and is removed by the next that writes `name`.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{disk, parent};
use crate::error::{Error, Result};

/// Ending of what is not complete yet.
pub(super) const NEW: &str = "tmp";
/// Ending of a folder whose place a new one is about to take.
pub(super) const OLD: &str = "old";
/// Random digits in a name.
const DIGITS: usize = 8;
/// Names longer than this are left out of the name aside, which would become too long for file systems.
const LONGEST: usize = 200;
/// Names to try before giving up.
const TRIES: usize = 100;

/// Creates something beside `path` with `create`, under a name that was free.
pub(super) fn create<T>(
    path: &Path,
    ending: &str,
    create: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    for _ in 0..TRIES {
        let aside = name(path, ending);
        match create(&aside) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            result => return result.map(|made| (aside, made)),
        }
    }
    Err(io::Error::new(ErrorKind::AlreadyExists, "no name beside it is free"))
}

/// A random name beside `path`.
pub(super) fn name(path: &Path, ending: &str) -> PathBuf {
    let random = RandomState::new().build_hasher().finish() as u32;
    let mut name = path.file_name().filter(|name| name.len() <= LONGEST).unwrap_or_default().to_owned();
    name.push(format!(".{random:0DIGITS$x}.{ending}"));
    path.with_file_name(name)
}

/// The final name of something aside with this ending; `None` for other names.
pub(super) fn final_name<'a>(name: &'a OsStr, ending: &str) -> Option<&'a str> {
    let (rest, end) = name.to_str()?.rsplit_once('.')?;
    let (name, digits) = rest.rsplit_once('.')?;
    let is_random =
        digits.len() == DIGITS && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    (end == ending && is_random && !name.is_empty()).then_some(name)
}

/// Returns whether a path lies in a folder that is not complete yet.
pub(super) fn is_inside(path: &Path) -> bool {
    path.ancestors().skip(1).filter_map(Path::file_name).any(|name| final_name(name, NEW).is_some())
}

/// Marks what lies aside as in use for as long as the handle lives. Without it nobody removes it, either, where the
/// file system has no locks.
pub(super) fn hold(file: &File) {
    file.try_lock().ok();
}

/// Removes what ended processes left aside in a folder, of files and folders whose final name `ours` knows.
pub(super) fn sweep(folder: &Path, ours: impl Fn(&str) -> bool) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let Ok(entry) = entry else { continue };
        if final_name(&entry.file_name(), NEW).is_some_and(&ours) && is_left(&entry.path()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Like [`sweep`], and also what versions before 0.2 left, `name.tmp` and `name.old`. For folders that belong to this program alone.
pub(super) fn sweep_own(folder: &Path, ours: impl Fn(&str) -> bool) -> Result<()> {
    let swept = || -> io::Result<()> {
        sweep(folder, &ours)?;
        let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
        for entry in entries {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name());
            let stem = path.file_stem().and_then(OsStr::to_str).filter(|stem| ours(stem));
            let replaced = final_name(&name, OLD).filter(|name| ours(name)).or(stem);
            let is_left = match path.extension().and_then(OsStr::to_str) {
                Some(NEW) => stem.is_some(),
                // What a new folder has taken the place of.
                Some(OLD) => replaced.is_some_and(|name| folder.join(name).exists()),
                _ => false,
            };
            if is_left {
                remove(&path)?;
            }
        }
        Ok(())
    };
    swept().map_err(Error::io("remove what a stopped run left in", folder))
}

/// Finds the folder that a process had moved out of the way of `path` as it ended.
pub(super) fn previous(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let entries = fs::read_dir(parent(path)).ok()?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut found = names.filter(|entry| final_name(entry, OLD) == Some(name));
    found.next().map(|entry| path.with_file_name(entry))
}

/// Returns whether the process that wrote it has ended.
fn is_left(path: &Path) -> bool {
    File::open(path).and_then(|file| file.try_lock().map_err(io::Error::from)).is_ok()
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() && !path.is_symlink() { disk::remove_all(path) } else { disk::remove_file(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_aside_are_told_from_names_of_users() {
        let aside = name(Path::new("a/b.txt"), NEW);
        assert_eq!(aside.parent(), Some(Path::new("a")));
        assert_eq!(final_name(aside.file_name().unwrap(), NEW), Some("b.txt"));
        for other in
            ["b.txt.tmp", "b.txt.12345.tmp", "b.1234567g.tmp", ".12345678.tmp", "b.12345678.old", "tmp"]
        {
            assert_eq!(final_name(OsStr::new(other), NEW), None, "{other}");
        }
        let long = "x".repeat(250);
        assert!(name(Path::new(&long), NEW).as_os_str().len() < 250);
    }

    #[test]
    fn what_is_in_use_stays_and_what_was_left_goes() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("out");
        let (held, file) = create(&path, NEW, disk::create_file).unwrap();
        hold(&file);
        let (left, _) = create(&path, NEW, disk::create_file).unwrap();
        let (folder, ()) = create(&path, NEW, |path| fs::create_dir(path)).unwrap();
        let (other, _) = create(&home.path().join("other"), NEW, disk::create_file).unwrap();
        fs::write(home.path().join("out.tmp"), "theirs").unwrap();
        sweep(home.path(), |name| name == "out").unwrap();
        assert!(held.exists() && other.exists() && home.path().join("out.tmp").exists());
        assert!(!left.exists() && !folder.exists());
        sweep_own(home.path(), |name| name == "out").unwrap();
        assert!(held.exists() && !home.path().join("out.tmp").exists());
    }
}
