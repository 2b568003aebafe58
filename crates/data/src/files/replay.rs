//! Power cuts, for tests: what a disk may hold if the power goes at some moment of a recorded run.
//!
//! The disk is one that promises no more than it must. Contents are there as far as the file was synced; the rest may
//! be there up to any byte. Names in a folder are there as of its last sync; changes after it are there up to any one
//! of them, and those of other folders independently.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::faults::Operation;

/// A file or folder, wherever its name is.
enum Node {
    File { bytes: Vec<u8>, synced: usize },
    Folder(BTreeMap<OsString, usize>),
}

/// A change of names, with the folders that it concerns.
struct Change {
    folders: Vec<PathBuf>,
    operation: Operation,
    /// The new file or folder.
    node: Option<usize>,
}

/// Writes to `to` what may be left of the folder `from` after a power cut: all of `operations` had been asked for, from
/// an empty folder on. `draw` returns a number below its argument, and decides what was lucky.
pub fn after_power_cut(
    operations: &[Operation],
    from: &Path,
    to: &Path,
    draw: &mut dyn FnMut(usize) -> usize,
) -> io::Result<()> {
    let mut disk = Disk { nodes: vec![Node::Folder(BTreeMap::new())], open: BTreeMap::new() };
    let mut changes: Vec<Change> = Vec::new();
    let mut synced: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for operation in operations {
        let folder = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
        let (folders, node) = match operation {
            Operation::Write(path, more) => {
                disk.write(path, more);
                continue;
            }
            Operation::SyncFile(path) => {
                disk.sync(path);
                continue;
            }
            Operation::SyncFolder(path) => {
                synced.insert(path.clone(), changes.len());
                continue;
            }
            Operation::CreateFile(path) => {
                (vec![folder(path)], Some(disk.create(path, Node::File { bytes: Vec::new(), synced: 0 })))
            }
            Operation::CreateFolder(path) => {
                (vec![folder(path)], Some(disk.create(path, Node::Folder(BTreeMap::new()))))
            }
            Operation::Rename(one, other) | Operation::Exchange(one, other) => {
                disk.renamed(operation);
                (vec![folder(one), folder(other)], None)
            }
            Operation::Remove(path) => (vec![folder(path)], None),
        };
        changes.push(Change { folders, operation: operation.clone(), node });
    }
    // For each folder, the changes that reached the disk: those before its last sync, and some more.
    let mut reached: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for folder in changes.iter().flat_map(|change| &change.folders) {
        let least = synced.get(folder).copied().unwrap_or(0);
        reached.entry(folder.clone()).or_insert_with(|| least + draw(changes.len() - least + 1));
    }
    for (number, change) in changes.iter().enumerate() {
        let survives = |folder: &PathBuf| number < reached[folder];
        let is_sure = |folder: &PathBuf| synced.get(folder).is_some_and(|&sure| number < sure);
        if change.folders.iter().any(is_sure) || change.folders.iter().all(survives) {
            disk.apply(change, from);
        }
    }
    disk.materialise(0, to, draw)
}

struct Disk {
    /// The first is the folder itself.
    nodes: Vec<Node>,
    /// Files and folders by the paths that the process knows them by.
    open: BTreeMap<PathBuf, usize>,
}

impl Disk {
    fn create(&mut self, path: &Path, node: Node) -> usize {
        self.nodes.push(node);
        self.open.insert(path.to_owned(), self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    fn file(&mut self, path: &Path) -> Option<(&mut Vec<u8>, &mut usize)> {
        match &mut self.nodes[*self.open.get(path)?] {
            Node::File { bytes, synced } => Some((bytes, synced)),
            Node::Folder(_) => None,
        }
    }

    fn write(&mut self, path: &Path, more: &[u8]) {
        if let Some((bytes, _)) = self.file(path) {
            bytes.extend_from_slice(more);
        }
    }

    fn sync(&mut self, path: &Path) {
        if let Some((bytes, synced)) = self.file(path) {
            *synced = bytes.len();
        }
    }

    /// Follows a change of names in the paths that the process knows.
    fn renamed(&mut self, operation: &Operation) {
        let (one, other, both) = match operation {
            Operation::Rename(one, other) => (one, other, false),
            Operation::Exchange(one, other) => (one, other, true),
            _ => return,
        };
        let moved = |open: &BTreeMap<PathBuf, usize>, from: &Path, to: &Path| -> Vec<(PathBuf, usize)> {
            let inside = open.iter().filter(|(path, _)| path.starts_with(from));
            // A path joined with nothing would end in a slash.
            let place = |path: &PathBuf| match path.strip_prefix(from) {
                Ok(rest) if !rest.as_os_str().is_empty() => to.join(rest),
                _ => to.to_owned(),
            };
            inside.map(|(path, &node)| (place(path), node)).collect()
        };
        let mut places = moved(&self.open, one, other);
        if both {
            places.extend(moved(&self.open, other, one));
        }
        self.open.retain(|path, _| !path.starts_with(one) && !path.starts_with(other));
        self.open.extend(places);
    }

    /// The folder that holds a name, as far as it is on the disk.
    fn folder(&mut self, path: &Path, from: &Path) -> Option<&mut BTreeMap<OsString, usize>> {
        let mut at = 0;
        for part in path.parent()?.strip_prefix(from).ok()? {
            let Node::Folder(names) = &self.nodes[at] else { return None };
            at = *names.get(part)?;
        }
        match &mut self.nodes[at] {
            Node::Folder(names) => Some(names),
            Node::File { .. } => None,
        }
    }

    fn take(&mut self, path: &Path, from: &Path) -> Option<usize> {
        self.folder(path, from)?.remove(path.file_name()?)
    }

    fn put(&mut self, path: &Path, from: &Path, node: usize) {
        if let (Some(names), Some(name)) = (self.folder(path, from), path.file_name()) {
            names.insert(name.to_owned(), node);
        }
    }

    fn apply(&mut self, change: &Change, from: &Path) {
        match (&change.operation, change.node) {
            (Operation::CreateFile(path) | Operation::CreateFolder(path), Some(node)) => {
                self.put(path, from, node);
            }
            (Operation::Rename(one, other), _) => {
                if let Some(node) = self.take(one, from) {
                    self.put(other, from, node);
                }
            }
            (Operation::Exchange(one, other), _) => {
                let (first, second) = (self.take(one, from), self.take(other, from));
                first.into_iter().for_each(|node| self.put(other, from, node));
                second.into_iter().for_each(|node| self.put(one, from, node));
            }
            (Operation::Remove(path), _) => drop(self.take(path, from)),
            _ => {}
        }
    }

    fn materialise(&self, node: usize, to: &Path, draw: &mut dyn FnMut(usize) -> usize) -> io::Result<()> {
        match &self.nodes[node] {
            Node::File { bytes, synced } => {
                let length = synced + draw(bytes.len() - synced + 1);
                fs::write(to, &bytes[..length])
            }
            Node::Folder(names) => {
                fs::create_dir_all(to)?;
                names.iter().try_for_each(|(name, &node)| self.materialise(node, &to.join(name), draw))
            }
        }
    }
}
