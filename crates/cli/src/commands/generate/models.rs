//! The models of a command line: one folder, or several that agree on their dictionaries.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use mae_data::segmentation::Segmenter;
use mae_data::{Segmentation, Vocab};
use mae_engine::Device;
use mae_model::Translator;
use mae_model::folder::{self, ModelFolder, Task};

/// One model or more, with the same dictionaries.
pub struct Models {
    /// The first, whose dictionaries and codes stand for all.
    pub first: ModelFolder,
    others: Vec<ModelFolder>,
    segmenters: Option<[Arc<Segmenter>; 2]>,
    names: Vec<String>,
}

impl Models {
    /// Loads the folders of `a:b:c`.
    pub fn load(paths: &str, device: &Device) -> anyhow::Result<Self> {
        // A folder may have a colon in its name.
        let names: Vec<String> = if Path::new(paths).is_dir() {
            vec![paths.to_owned()]
        } else {
            paths.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let mut folders = Vec::new();
        for name in &names {
            folders.push(load(Path::new(name), device)?);
        }
        if folders.is_empty() {
            bail!("no model is named in `{paths}`");
        }
        let first = folders.remove(0);
        for (name, other) in names[1..].iter().zip(&folders) {
            for (side, file, found, wanted) in [
                ("source", folder::SOURCE_DICT, &other.source, &first.source),
                ("target", folder::TARGET_DICT, &other.target, &first.target),
            ] {
                same_dictionary(found, wanted).with_context(|| {
                    format!(
                        "{name} and {} cannot translate together: their {side} dictionaries ({file}) differ",
                        names[0]
                    )
                })?;
            }
        }
        let segmenters = first.codes.as_ref().map(Segmentation::segmenters);
        Ok(Self { first, others: folders, segmenters, names })
    }

    /// What cuts source and target text; `None` where it comes in pieces.
    pub fn segmenters(&self) -> Option<&[Arc<Segmenter>; 2]> {
        self.segmenters.as_ref()
    }

    /// The models with the names of their folders.
    pub fn named(&self) -> impl Iterator<Item = (&str, &Translator)> {
        let folders = std::iter::once(&self.first).chain(&self.others);
        self.names.iter().map(String::as_str).zip(folders.map(|folder| &folder.model))
    }

    /// The models.
    pub fn all(&self) -> Vec<&Translator> {
        self.named().map(|(_, model)| model).collect()
    }

    /// Tokens of the longest sentence that all of them can take.
    pub fn positions(&self) -> usize {
        self.named().map(|(_, model)| model.config().max_positions).min().unwrap_or(0)
    }
}

fn same_dictionary(found: &Vocab, wanted: &Vocab) -> anyhow::Result<()> {
    let Some((id, found, wanted)) = found.first_difference(wanted) else { return Ok(()) };
    bail!("id {id} is {} in the one, {} in the other", named(found), named(wanted))
}

/// A token of a dictionary, for messages.
pub fn named(token: Option<&str>) -> String {
    token.map_or("nothing".into(), |token| format!("`{token}`"))
}

fn load(path: &Path, device: &Device) -> anyhow::Result<ModelFolder> {
    if folder::task(path)? == Task::LanguageModeling {
        bail!(
            "{} is a language model, which does not translate: `mae continue {0} --prompt TEXT` lets it go on writing, \
             `mae eval-lm {0} --data DIR` measures it",
            path.display()
        );
    }
    ModelFolder::load(path, device).with_context(|| format!("cannot load the model {}", path.display()))
}
