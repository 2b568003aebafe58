//! A run that is wanted.

use std::path::PathBuf;

use mae_train::Recipe;

/// A run that is wanted.
#[derive(Clone, Debug)]
pub struct Job {
    /// System or method.
    pub system: String,
    /// Seed.
    pub seed: u64,
    /// Name of the run's folder.
    pub name: String,
    /// Work to do.
    pub work: Work,
}

/// Work of a run.
#[derive(Clone, Debug)]
pub enum Work {
    /// Trains a model by this recipe.
    Train(Recipe),
    /// Measures the model of this folder as it is.
    Measure(PathBuf),
}

/// Name of the folder of a system's run with this seed.
pub fn folder_name(system: &str, seed: u64) -> String {
    format!("{system}-{seed}")
}
