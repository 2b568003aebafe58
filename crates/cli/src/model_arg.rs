//! The model folder that a command reads.

use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use mae_model::folder::CONFIG;
use mae_train::artifacts::{BEST, LAST};

/// Reads the argument of a model folder; the folder of a run stands for its best model.
pub fn model_folder() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|path| model_in(&path))
}

/// The model folder that a path means: itself, or the best model of a run, else its newest. The choice is told.
pub fn model_in(path: &Path) -> PathBuf {
    match of_run(path) {
        None => path.to_owned(),
        Some(model) => {
            let name = model.file_name().unwrap_or_default().to_string_lossy();
            eprintln!("mae: {} is the folder of a run: its {name} is used", path.display());
            model
        }
    }
}

fn of_run(path: &Path) -> Option<PathBuf> {
    let is_model = |path: &Path| path.join(CONFIG).is_file();
    let inside = [BEST, LAST].map(|name| path.join(name));
    inside.into_iter().find(|inside| is_model(inside)).filter(|_| !is_model(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stands_for_its_best_model() {
        let place = tempfile::tempdir().unwrap();
        let run = place.path();
        assert_eq!(of_run(run), None);
        for name in [LAST, BEST] {
            std::fs::create_dir(run.join(name)).unwrap();
            std::fs::write(run.join(name).join(CONFIG), "").unwrap();
            assert_eq!(of_run(run), Some(run.join(name)));
            assert_eq!(of_run(&run.join(name)), None);
        }
        std::fs::write(run.join(CONFIG), "").unwrap();
        assert_eq!(of_run(run), None);
    }
}
