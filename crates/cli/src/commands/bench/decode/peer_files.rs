//! The model and the sentences of a benchmark, for a peer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use mae_data::Vocab;
use mae_data::vocab::VocabOptions;
use mae_engine::Device;
use mae_exchange::export::{self, Folder};
use mae_model::Translator;
use mae_model::folder::ModelFolder;

use super::super::peer::Flags;
use super::super::shapes::Shape;

/// A folder with the plain transformer of a shape, as a model folder and for CTranslate2, and the source sentences. It
/// goes away when dropped.
pub struct PeerFiles(PathBuf);

impl PeerFiles {
    /// Writes the files: the weights are those that our own measurements have.
    pub fn write(shape: &Shape, sources: &[Vec<u32>]) -> Result<Self> {
        let files = Self(std::env::temp_dir().join(format!("mae-bench-{}", std::process::id())));
        std::fs::create_dir_all(&files.0).with_context(|| files.0.display().to_string())?;
        let [source, target] = [shape.src_vocab, shape.tgt_vocab].map(dictionary);
        let types = [source.len(), target.len()];
        let model = Translator::new(&shape.config("base")?.model, types, &Device::cpu(), 1)?;
        let words = |ids: &Vec<u32>| {
            let words: Vec<&str> = ids[..ids.len() - 1].iter().map(|&id| source.symbol(id)).collect();
            words.join(" ") + "\n"
        };
        let text: String = sources.iter().map(words).collect();
        std::fs::write(files.path("source"), text)?;
        ModelFolder { model, source, target, codes: None, text: Default::default() }
            .save(&files.path("model"))?;
        let folder = Folder::open(&files.path("model"))?;
        export::ct2::export(&folder, &export::HeadWeights::Ones, &files.path("ct2"))?;
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Flags that name the files.
    pub fn flags(&self) -> Flags {
        let text = |path: &Path| path.display().to_string();
        vec![
            ("model", text(&self.path("model"))),
            ("ct2-model", text(&self.path("ct2"))),
            ("source", text(&self.path("source"))),
        ]
    }
}

impl Drop for PeerFiles {
    fn drop(&mut self) {
        // Best effort: it is in the folder for temporary files.
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// A dictionary of made-up words, the special types among so many.
fn dictionary(types: usize) -> Arc<Vocab> {
    let words = (mae_data::vocab::SPECIALS.len()..types).map(|i| (format!("w{i}"), 1));
    Arc::new(Vocab::from_counts(words, VocabOptions { padding_factor: 1, ..VocabOptions::default() }))
}
