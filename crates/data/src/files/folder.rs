//! Folders that take the place of others as a whole.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::file::behind_links;
use super::{aside, disk, parent};
use crate::error::{Error, Result};

/// Makes a folder and those above it that are missing, and brings their names to the disk.
pub fn create_folder(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let missing: Vec<&Path> =
        path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    let make = |folder: &Path| match disk::create_folder(folder) {
        // Another process was quicker, which is as good.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made.and_then(|()| disk::sync_folder(parent(folder))),
    };
    missing.into_iter().rev().try_for_each(make).map_err(Error::io("create", path))?;
    if path.is_dir() || path.as_os_str().is_empty() {
        return Ok(());
    }
    Err(Error::io("create", path)(io::Error::other("a file has this name; name a folder")))
}

/// A folder that is being filled beside its final place; it is removed if it is dropped.
pub(super) struct AsideFolder {
    pub(super) path: PathBuf,
    /// Keeps other processes from removing it.
    _held: Option<File>,
}

impl AsideFolder {
    pub(super) fn create(path: &Path) -> Result<Self> {
        create_folder(parent(path))?;
        let fault = Error::io("create", path);
        let made = (|| {
            if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
                aside::sweep(parent(path), |left| left == name)?;
            }
            aside::create(path, aside::NEW, disk::create_folder)
        })();
        let (path, ()) = made.map_err(fault)?;
        let held = File::open(&path).ok();
        held.iter().for_each(aside::hold);
        Ok(Self { path, _held: held })
    }

    /// Brings all its files and their names to the disk.
    pub(super) fn sync(&self) -> Result<()> {
        sync_all(&self.path).map_err(Error::io("sync", &self.path))
    }
}

impl Drop for AsideFolder {
    fn drop(&mut self) {
        if self.path.exists() {
            disk::remove_all(&self.path).ok();
        }
    }
}

/// Lets `write` fill a new folder, then puts it in the place of `path`. The previous one is removed only when
/// the new one is on the disk, with all its files and under its name; if `write` fails, the previous one stays.
/// Where the system can exchange two names in one step, there is a folder of this name at every moment.
pub fn replace_folder<E: From<Error>>(
    path: &Path,
    write: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    let path = &behind_links(path);
    if path.exists() && !path.is_dir() {
        return Err(Error::io("replace", path)(ErrorKind::NotADirectory.into()).into());
    }
    let new = AsideFolder::create(path)?;
    write(&new.path)?;
    Ok(take_place(new, path)?)
}

fn take_place(new: AsideFolder, path: &Path) -> Result<()> {
    restore(path, aside::previous(path))?;
    if let Ok(previous) = fs::metadata(path) {
        fs::set_permissions(&new.path, previous.permissions()).ok();
    }
    new.sync()?;
    let done = || disk::sync_folder(parent(path)).map_err(Error::io("sync", path));
    if !path.exists() {
        disk::rename(&new.path, path).map_err(Error::io("rename", &new.path))?;
        return done();
    }
    // What was exchanged lies aside now, and is removed as `new` is dropped.
    if disk::exchange(&new.path, path).map_err(Error::io("replace", path))? {
        return done();
    }
    let previous = aside::name(path, aside::OLD);
    disk::rename(path, &previous).map_err(Error::io("replace", path))?;
    if let Err(error) = disk::rename(&new.path, path) {
        disk::rename(&previous, path).ok();
        return Err(Error::io("rename", &new.path)(error));
    }
    done()?;
    // It is complete: the next that writes there removes what stays.
    disk::remove_all(&previous).ok();
    Ok(())
}

/// Puts the previous folder back under its name where a process ended between the two renames of
/// [`replace_folder`]. Returns whether there is a folder of this name.
pub fn recover_folder(path: &Path) -> Result<bool> {
    restore(path, previous_folder(path))?;
    Ok(path.exists())
}

/// Finds the folder that a process moved out of the way of `path` and did not put back: also under the name that
/// versions before 0.2 gave it, `name.old`.
pub fn previous_folder(path: &Path) -> Option<PathBuf> {
    let earlier = || Some(path.with_added_extension(aside::OLD)).filter(|earlier| earlier.is_dir());
    aside::previous(path).or_else(earlier)
}

fn restore(path: &Path, previous: Option<PathBuf>) -> Result<()> {
    match previous {
        Some(previous) if !path.exists() => {
            disk::rename(&previous, path).map_err(Error::io("rename", &previous))?;
            disk::sync_folder(parent(path)).map_err(Error::io("sync", path))
        }
        _ => Ok(()),
    }
}

/// Removes a folder: first its name, in one step, then everything in it. A process that ends meanwhile leaves it
/// aside, where nobody takes it for complete.
pub fn remove_folder(path: &Path) -> Result<()> {
    let aside = aside::name(path, aside::NEW);
    disk::rename(path, &aside)
        .and_then(|()| disk::sync_folder(parent(path)))
        .and_then(|()| disk::remove_all(&aside))
        .map_err(Error::io("remove", path))
}

/// Gives a folder or file another name in the same folder, and brings that to the disk.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    disk::rename(from, to).and_then(|()| disk::sync_folder(parent(to))).map_err(Error::io("rename", from))
}

/// Brings all files of a folder and their names to the disk.
fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (kind, path) = (entry.file_type()?, entry.path());
        if kind.is_dir() {
            sync_all(&path)?;
        } else if kind.is_file() {
            disk::sync_file(&File::open(&path)?, &path)?;
        }
    }
    disk::sync_folder(folder)
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
        // What a stopped process left is not taken over, and goes.
        let left = aside::name(&path, aside::NEW);
        fs::create_dir(&left).unwrap();
        fs::write(left.join("left"), "").unwrap();
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
    fn folders_of_users_beside_it_stay() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("model");
        for name in ["model", "model.tmp", "model.old"] {
            fs::create_dir(home.path().join(name)).unwrap();
            fill(name)(&home.path().join(name)).unwrap();
        }
        replace_folder(&path, fill("new")).unwrap();
        assert_eq!(names(home.path()), ["model", "model.old", "model.tmp"]);
        assert_eq!(fs::read_to_string(home.path().join("model.old/text")).unwrap(), "model.old");
    }

    #[test]
    fn the_previous_folder_comes_back_where_a_process_stopped_between_renames() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("last");
        assert!(!recover_folder(&path).unwrap());
        for previous in [aside::name(&path, aside::OLD), path.with_added_extension("old")] {
            fs::create_dir(&previous).unwrap();
            fill("old")(&previous).unwrap();
            assert!(recover_folder(&path).unwrap());
            assert_eq!(names(home.path()), ["last"]);
            remove_folder(&path).unwrap();
            assert!(names(home.path()).is_empty());
        }
    }
}
