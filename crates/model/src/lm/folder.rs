//! The folder of a language model: `model.safetensors`, `config.toml` with `task = "language_modeling"`, `dict.txt` and,
//! where the text was segmented, `bpe.codes`.

use std::path::Path;
use std::sync::Arc;

use mae_data::{Segmentation, TextRecord, Vocab};
use mae_engine::Device;

use super::{LanguageModel, LmConfig};
use crate::Result;
use crate::folder::{self, Snapshot, WEIGHTS};

/// The dictionary.
pub const DICT: &str = "dict.txt";

/// A language model with what it needs to read and write text.
pub struct LmFolder {
    /// The model.
    pub model: LanguageModel,
    /// The dictionary.
    pub dictionary: Arc<Vocab>,
    /// Segmentation, if the folder holds codes.
    pub codes: Option<Segmentation>,
}

impl LmFolder {
    /// Loads a folder; anything missing, extra or of another shape is refused by name. The model computes in the number
    /// type of the device ([`Device::holding`]), which may be left to the folder.
    pub fn load(folder: &Path, device: &Device) -> Result<Self> {
        let config: LmConfig = folder::load_config(folder)?;
        let stored = folder::check_size(folder, &config)?;
        let device = &folder::holding(device, stored)?;
        let dictionary = Arc::new(Vocab::load(folder.join(DICT))?);
        let mut model = LanguageModel::zeroed(&config, dictionary.len(), device)?;
        folder::load_weights(&folder.join(WEIGHTS), model.params_mut())?;
        Ok(Self { model, dictionary, codes: Segmentation::load(folder)? })
    }

    /// Writes all files into `folder`, which is made if need be.
    pub fn save(&self, folder: &Path) -> Result<()> {
        let dict: [(&str, &Vocab); 1] = [(DICT, &self.dictionary)];
        Snapshot::of(&self.model)?.save(folder, &dict, self.codes.as_ref(), &TextRecord::default())
    }
}
