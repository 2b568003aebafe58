//! Files of a corpus in archives and folders: found by name, extracted where necessary.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use tar::{Archive, Entry, PaxExtensions};

use crate::decompress;
use crate::error::{Error, Result};
use crate::files::{TextFile, create_folder};
use crate::options::OptionFault;

/// Folders are searched this deep.
const DEEPEST: usize = 6;
/// Archives in archives are opened this deep.
const NESTED: usize = 8;
/// Bytes of a name in an archive, with its attributes.
const LONGEST_NAME: u64 = 1 << 16;

/// Finds one complete set of files, the first of `sets` that is there, in folders and archives; files that only
/// an archive holds are extracted to `orig`. Archives inside archives are searched if `inner` has a part of
/// their name.
pub(super) fn gather(
    places: &[PathBuf],
    sets: &[Vec<String>],
    inner: &[String],
    orig: &Path,
    mut progress: impl FnMut(&str),
) -> Result<Vec<PathBuf>> {
    let wanted = sets.iter().flatten().map(String::as_str).collect();
    let mut search = Search {
        wanted,
        inner,
        orig,
        found: FxHashMap::default(),
        archives: Vec::new(),
        progress: &mut progress,
    };
    for place in places {
        search.look_at(place, DEEPEST)?;
    }
    for archive in std::mem::take(&mut search.archives) {
        if search.complete(sets).is_none() {
            search.open(&archive)?;
        }
    }
    search.complete(sets).ok_or_else(|| {
        let missing = |set: &Vec<String>| -> Vec<String> {
            set.iter().filter(|name| !search.found.contains_key(*name)).cloned().collect()
        };
        let fewest = sets.iter().map(missing).min_by_key(Vec::len).unwrap_or_default();
        OptionFault::MissingFiles { places: places.to_vec(), missing: fewest }.into()
    })
}

struct Search<'a> {
    wanted: FxHashSet<&'a str>,
    inner: &'a [String],
    orig: &'a Path,
    found: FxHashMap<String, PathBuf>,
    archives: Vec<PathBuf>,
    progress: &'a mut dyn FnMut(&str),
}

impl Search<'_> {
    /// The paths of the first set of which all files are found.
    fn complete(&self, sets: &[Vec<String>]) -> Option<Vec<PathBuf>> {
        sets.iter().find_map(|set| set.iter().map(|name| self.found.get(name).cloned()).collect())
    }

    fn look_at(&mut self, place: &Path, depth: usize) -> Result<()> {
        let metadata = fs::metadata(place).map_err(Error::io("open", place))?;
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A text may be compressed; it is read as it is.
        let text = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
        if metadata.is_dir() {
            if depth == 0 {
                return Ok(());
            }
            let entries = fs::read_dir(place).map_err(Error::io("list", place))?;
            let mut paths = Vec::new();
            for entry in entries {
                paths.push(entry.map_err(Error::io("list", place))?.path());
            }
            paths.sort();
            // A file that cannot be opened there (a dangling link, say) is not of the corpus.
            paths.iter().filter(|path| path.exists()).try_for_each(|path| self.look_at(path, depth - 1))
        } else {
            if self.wanted.contains(text) {
                self.found.entry(text.to_owned()).or_insert_with(|| place.to_owned());
            } else if is_archive(&name) || depth == DEEPEST {
                self.archives.push(place.to_owned());
            }
            Ok(())
        }
    }

    fn open(&mut self, path: &Path) -> Result<()> {
        (self.progress)(&path.display().to_string());
        self.extract(&mut decompress::open(path)?, path, NESTED)
    }

    /// Extracts what is wanted; archives inside are opened up to this depth.
    fn extract(&mut self, source: &mut dyn Read, path: &Path, depth: usize) -> Result<()> {
        let damaged =
            |error: std::io::Error| Error::Io { action: "unpack", path: path.to_owned(), source: error };
        let no_archive = |error: std::io::Error| {
            let what = format!("it is not a whole tar archive, plain or compressed ({error})");
            damaged(std::io::Error::new(error.kind(), what))
        };
        let mut archive = Archive::new(source);
        // Long names are read here: the library would take names of any length into memory.
        let mut long_name = None;
        for entry in archive.entries().map_err(damaged)?.raw(true) {
            let mut entry = entry.map_err(no_archive)?;
            if let Some(name) = long_name_in(&mut entry).map_err(damaged)? {
                long_name = Some(name);
                continue;
            }
            let header = entry.path().map_err(damaged)?.into_owned();
            let inside = long_name.take().unwrap_or(header);
            // Only the last part of a name is used, so that no archive can write elsewhere.
            let name = inside.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !entry.header().entry_type().is_file() {
                continue;
            }
            if self.wanted.contains(&*name) && !self.found.contains_key(&name) {
                (self.progress)(&name);
                create_folder(self.orig)?;
                let to = self.orig.join(&name);
                let mut file = TextFile::create(&to)?;
                let size = entry.size();
                // The end of a cut archive is not an error of the reader.
                if file.copy(&mut entry).map_err(damaged)? != size {
                    return Err(damaged(ErrorKind::UnexpectedEof.into()));
                }
                file.finish()?;
                self.found.insert(name, to);
            } else if is_archive(&name) && self.inner.iter().any(|part| name.contains(part.as_str())) {
                let inner = path.join(&name);
                if depth == 0 {
                    let what = format!("archives are nested more than {NESTED} deep: extract it by hand");
                    return Err(Error::dataset(&inner, what));
                }
                let source = decompress::decode(Box::new(entry)).map_err(damaged)?;
                self.extract_inner(source, &inner, depth - 1)?;
            }
        }
        Ok(())
    }

    fn extract_inner(&mut self, mut source: Box<dyn Read + '_>, path: &Path, depth: usize) -> Result<()> {
        self.extract(&mut source, path, depth)
    }
}

/// The name that this record gives to the next entry, if it is a record that does.
fn long_name_in(entry: &mut Entry<'_, impl Read>) -> io::Result<Option<PathBuf>> {
    let kind = entry.header().entry_type();
    if !kind.is_gnu_longname() && !kind.is_pax_local_extensions() {
        return Ok(None);
    }
    let mut text = Vec::new();
    entry.take(LONGEST_NAME + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST_NAME {
        return Err(io::Error::other(format!(
            "a name or its attributes have more than {LONGEST_NAME} bytes"
        )));
    }
    let name = if kind.is_gnu_longname() {
        text.split(|&byte| byte == 0).next().map(<[u8]>::to_vec)
    } else {
        let path = PaxExtensions::new(&text).flatten().find(|item| item.key_bytes() == b"path");
        path.map(|item| item.value_bytes().to_vec())
    };
    Ok(name.map(|name| PathBuf::from(String::from_utf8_lossy(&name).into_owned())))
}

fn is_archive(name: &str) -> bool {
    [".tgz", ".tar.gz", ".tar", ".tar.zst"].iter().any(|end| name.ends_with(end))
}
