//! Files of one folder that change together. They are written to a folder inside it, and one rename of that folder to
//! `new.complete` decides: before it the old files count, after it the new ones. What is left, moving them up one by
//! one, is finished by the next that opens the folder if the process ends meanwhile.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::folder::AsideFolder;
use super::{create_folder, disk, parent, write};
use crate::error::{Error, Result};

/// The folder of new files before they are complete; random digits follow.
const NEW: &str = "new";
/// The same when they are complete.
const COMPLETE: &str = "new.complete";
/// List in it of files that go, one path per line.
const REMOVED: &str = "removed.list";

/// New files of a folder, which appear together or not at all.
pub(crate) struct FileSet {
    folder: PathBuf,
    aside: AsideFolder,
    removed: Vec<String>,
}

impl FileSet {
    /// Starts a set for a folder, which is made if it is missing.
    pub(crate) fn begin(folder: &Path) -> Result<Self> {
        create_folder(folder)?;
        settle(folder)?;
        let aside = AsideFolder::create(&folder.join(NEW))?;
        Ok(Self { folder: folder.to_owned(), aside, removed: Vec::new() })
    }

    /// Folder to write the files to, under their final names.
    pub(crate) fn place(&self) -> &Path {
        &self.aside.path
    }

    /// Removes an old file, by its path in the folder, as the new ones appear.
    pub(crate) fn remove(&mut self, path: impl Into<String>) {
        self.removed.push(path.into());
    }

    /// Lets the new files take their places.
    pub(crate) fn commit(self) -> Result<()> {
        write(self.place().join(REMOVED), self.removed.join("\n").as_bytes())?;
        self.aside.sync()?;
        let complete = self.folder.join(COMPLETE);
        disk::rename(self.place(), &complete)
            .and_then(|()| disk::sync_folder(&self.folder))
            .map_err(Error::io("rename", self.place()))?;
        settle(&self.folder)
    }
}

/// Finishes a set of new files whose process ended as they took their places, in this folder or in the one above it,
/// of which this one may be a part.
pub(crate) fn settle(folder: &Path) -> Result<()> {
    finish(folder)?;
    if folder.file_name().is_some() { finish(parent(folder)) } else { Ok(()) }
}

fn finish(folder: &Path) -> Result<()> {
    let complete = folder.join(COMPLETE);
    let list = complete.join(REMOVED);
    // Without the list it is not ours, or nothing is left to do.
    if !list.is_file() {
        return Ok(());
    }
    let settled = || -> io::Result<()> {
        let removed = gone_is("", fs::read_to_string(&list))?;
        for path in removed.lines() {
            gone_is((), disk::remove_file(&folder.join(path)))?;
        }
        move_up(&complete, folder)?;
        disk::sync_folder(folder)?;
        gone_is((), disk::remove_file(&list))?;
        gone_is((), disk::remove_empty(&complete))?;
        disk::sync_folder(folder)
    };
    settled().map_err(Error::io("finish writing", folder))
}

/// Moves all files of a folder into another, but the list.
fn move_up(from: &Path, to: &Path) -> io::Result<()> {
    let Some(entries) = gone_is(None, fs::read_dir(from).map(Some))? else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_name() == REMOVED {
            continue;
        }
        if entry.file_type()?.is_dir() {
            if !target.is_dir() {
                match disk::create_folder(&target) {
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    made => made?,
                }
            }
            move_up(&entry.path(), &target)?;
            disk::sync_folder(&target)?;
            gone_is((), disk::remove_empty(&entry.path()))?;
        } else {
            gone_is((), disk::rename(&entry.path(), &target))?;
        }
    }
    Ok(())
}

/// Takes what another process has done already as done.
fn gone_is<T, U: Into<T>>(gone: U, result: io::Result<T>) -> io::Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(gone.into()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(folder: &Path, text: &str) -> FileSet {
        let mut set = FileSet::begin(folder).unwrap();
        fs::create_dir(set.place().join("sub")).unwrap();
        for name in ["a", "sub/b"] {
            fs::write(set.place().join(name), text).unwrap();
        }
        set.remove("c");
        set
    }

    fn texts(folder: &Path) -> Vec<Option<String>> {
        ["a", "sub/b", "c", "theirs"].map(|name| fs::read_to_string(folder.join(name)).ok()).to_vec()
    }

    #[test]
    fn files_change_together_and_others_stay() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("bin");
        filled(&folder, "old").commit().unwrap();
        fs::write(folder.join("c"), "old").unwrap();
        fs::write(folder.join("theirs"), "theirs").unwrap();
        drop(filled(&folder, "dropped"));
        let old = |text: &str| Some(text.to_owned());
        assert_eq!(texts(&folder), [old("old"), old("old"), old("old"), old("theirs")]);
        filled(&folder, "new").commit().unwrap();
        assert_eq!(texts(&folder), [old("new"), old("new"), None, old("theirs")]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        // A process that ended halfway; a reader of the folder inside comes first.
        fs::create_dir_all(folder.join(COMPLETE).join("sub")).unwrap();
        fs::write(folder.join(COMPLETE).join("a"), "newest").unwrap();
        fs::write(folder.join(COMPLETE).join(REMOVED), "theirs\nsub/none").unwrap();
        settle(&folder.join("sub")).unwrap();
        assert_eq!(texts(&folder), [old("newest"), old("new"), None, None]);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    }
}
