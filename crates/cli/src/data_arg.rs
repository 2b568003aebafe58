//! The folder of binarised data that a command reads.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use mae_data::prepare::DATA_BIN;

/// Data of commands that take a model first: `MODEL DATA` and `MODEL --data DIR` mean the same.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct DataArg {
    /// Folder written by `mae prepare`, `mae preprocess` or fairseq-preprocess.
    #[arg(value_name = "DATA", id = "data_folder")]
    folder: Option<PathBuf>,
    /// The same as DATA.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl DataArg {
    /// The folder, if one was given.
    pub fn folder(&self) -> Option<PathBuf> {
        self.folder.as_ref().or(self.data.as_ref()).map(|folder| data_bin(folder))
    }

    /// The folder, which the command cannot do without.
    pub fn needed(&self, instead: &str) -> Result<PathBuf> {
        match self.folder() {
            Some(folder) => Ok(folder),
            None => bail!("no data: give a preprocessed folder after the model or with --data{instead}"),
        }
    }
}

/// The folder of binarised data that `folder` is, or holds as `mae prepare` writes it.
pub fn data_bin(folder: &Path) -> PathBuf {
    let inside = folder.join(DATA_BIN);
    let has_dictionary = |folder: &Path| {
        let Ok(files) = std::fs::read_dir(folder) else { return false };
        files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("dict."))
    };
    if !has_dictionary(folder) && has_dictionary(&inside) { inside } else { folder.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_prepare_leads_to_its_data() {
        let place = tempfile::tempdir().unwrap();
        let (out, bin) = (place.path().join("out"), place.path().join("out").join(DATA_BIN));
        std::fs::create_dir_all(&bin).unwrap();
        assert_eq!(data_bin(&out), out);
        std::fs::write(bin.join("dict.de.txt"), "").unwrap();
        assert_eq!([data_bin(&out), data_bin(&bin)], [bin.clone(), bin.clone()]);
        std::fs::write(out.join("dict.txt"), "").unwrap();
        assert_eq!(data_bin(&out), out);
    }
}
