//! Folders that take the place of others as a whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{aside, parent, sync_folder};
use crate::error::{Error, Result};

/// Makes a folder and those above it that are missing, and brings their names to the disk.
pub fn create_folder(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let made: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(path).map_err(Error::io("create", path))?;
    made.into_iter().try_for_each(|folder| sync_folder(parent(folder))).map_err(Error::io("sync", path))
}

/// Lets `write` fill a new folder, then puts it in the place of `path`. The previous one is removed only when
/// the new one is on the disk, with all its files and under its name; if `write` fails, the previous one stays.
pub fn replace_folder<E: From<Error>>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    recover_folder(path)?;
    let (new, previous) = (aside(path), previous_folder(path));
    remove(&new)?;
    create_folder(&new)?;
    let sync = || sync_all(&new).map_err(|error| Error::io("sync", &new)(error).into());
    if let Err(error) = write(&new).and_then(|()| sync()) {
        fs::remove_dir_all(&new).ok();
        return Err(error);
    }
    remove(&previous)?;
    if path.exists() {
        fs::rename(path, &previous).map_err(Error::io("replace", path))?;
    }
    fs::rename(&new, path).map_err(Error::io("rename", &new))?;
    sync_folder(parent(path)).map_err(Error::io("sync", path))?;
    Ok(remove(&previous)?)
}

/// Puts the previous folder back under its name where a process stopped between the two renames of
/// [`replace_folder`]. Returns whether there is a folder of this name.
pub fn recover_folder(path: &Path) -> Result<bool> {
    let previous = previous_folder(path);
    if !path.exists() && previous.exists() {
        fs::rename(&previous, path).map_err(Error::io("rename", &previous))?;
    }
    Ok(path.exists())
}

/// Name of the previous folder while a new one takes its place: `name` → `name.old`.
pub fn previous_folder(path: &Path) -> PathBuf {
    path.with_added_extension("old")
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() { fs::remove_dir_all(folder).map_err(Error::io("remove", folder)) } else { Ok(()) }
}

/// Brings all files of a folder and their names to the disk.
fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_all(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_folder(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> impl Fn(&Path) -> Result<()> {
        move |folder| super::super::write(folder.join("text"), text.as_bytes())
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_replaced_as_a_whole_or_stays() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("deep/run/last");
        let text = || fs::read_to_string(path.join("text")).unwrap();
        replace_folder(&path, fill("first")).unwrap();
        fs::write(path.join("more"), "of the first").unwrap();
        // What a stopped process left is not taken over.
        fs::create_dir(aside(&path)).unwrap();
        fs::write(aside(&path).join("left"), "").unwrap();
        replace_folder(&path, fill("second")).unwrap();
        assert_eq!((text().as_str(), names(&path)), ("second", vec!["text".to_owned()]));

        let failed = replace_folder(&path, |folder| {
            fill("third")(folder)?;
            Err(Error::NoWords)
        });
        assert!(matches!(failed, Err(Error::NoWords)));
        assert_eq!((text().as_str(), names(path.parent().unwrap())), ("second", vec!["last".to_owned()]));
    }

    #[test]
    fn the_previous_folder_comes_back_where_a_process_stopped_between_renames() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("last");
        assert!(!recover_folder(&path).unwrap());
        fill("old")(&{
            create_folder(previous_folder(&path)).unwrap();
            previous_folder(&path)
        })
        .unwrap();
        assert!(recover_folder(&path).unwrap());
        assert_eq!(names(home.path()), ["last"]);
        // Both are there: it stopped before the previous one was removed.
        create_folder(previous_folder(&path)).unwrap();
        replace_folder(&path, fill("new")).unwrap();
        assert_eq!(names(home.path()), ["last"]);
        assert_eq!(fs::read_to_string(path.join("text")).unwrap(), "new");
    }
}
