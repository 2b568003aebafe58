//! Model folders of 8-bit integers: a quarter of the size, for inference on CPUs.

use std::path::Path;

use mae_data::files::{self, FolderLock};
use mae_data::{Segmentation, TextRecord, Vocab};
use mae_engine::{ComputeType, Device};

use crate::folder::{self, CONFIG, ModelFolder, SOURCE_DICT, Stored, TARGET_DICT, Task, WEIGHTS};
use crate::lm::LmFolder;
use crate::lm::folder::DICT;
use crate::weights::write_rounded;
use crate::{Error, Model, Result};

/// Sizes of the two files of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantised {
    /// Bytes of the given model's.
    pub before: u64,
    /// Bytes of the new one's.
    pub after: u64,
}

/// Writes to `output` the model in `path` with large matrices in 8-bit integers; small tensors stay as they are. It
/// computes what the given model computes with [`ComputeType::Int8`], to the bit. A folder that is there is replaced as
/// a whole.
pub fn quantise(path: &Path, output: &Path) -> Result<Quantised> {
    if folder::stored(path)? == Stored::Int8 {
        let message = "the weights are 8-bit integers already".to_owned();
        return Err(Error::Parse { path: path.join(CONFIG), message });
    }
    let device = Device::cpu().holding(ComputeType::Int8)?;
    let _lock = FolderLock::take_beside(output)?;
    match folder::task(path)? {
        Task::Translation => {
            let ModelFolder { model, source, target, codes, text } = ModelFolder::load(path, &device)?;
            let dicts: [(&str, &Vocab); 2] = [(SOURCE_DICT, &source), (TARGET_DICT, &target)];
            files::replace_folder(output, |place| save(place, &model, &dicts, (codes.as_ref(), &text)))?;
        }
        Task::LanguageModeling => {
            let LmFolder { model, dictionary, codes } = LmFolder::load(path, &device)?;
            files::replace_folder(output, |place| {
                save(place, &model, &[(DICT, &dictionary)], (codes.as_ref(), &TextRecord::default()))
            })?;
        }
    }
    let size = |folder: &Path| -> Result<u64> {
        let weights = folder.join(WEIGHTS);
        Ok(std::fs::metadata(&weights).map_err(Error::io(&weights))?.len())
    };
    Ok(Quantised { before: size(path)?, after: size(output)? })
}

fn save<M: Model>(
    place: &Path,
    model: &M,
    dicts: &[(&str, &Vocab)],
    (codes, text): (Option<&Segmentation>, &TextRecord),
) -> Result<()> {
    files::create_folder(place)?;
    write_rounded(&place.join(WEIGHTS), model.params())?;
    files::write(place.join(CONFIG), folder::config_text_of(model.config(), Stored::Int8).as_bytes())?;
    for (name, dict) in dicts {
        dict.save(place.join(name))?;
    }
    Segmentation::save(codes, place)?;
    Ok(text.save(place)?)
}
