//! Files that a study and its runs leave for comparisons.

use std::collections::BTreeMap;
use std::path::Path;

use mae_eval::perplexity::Stretch;

use crate::error::{Error, Result, read_if_there};

/// References of a study and translations of a run, in one form of text.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// Name of the references in the study's folder.
    pub references: &'static str,
    /// Name of the translations in a run's folder.
    pub translations: &'static str,
}

/// Whitespace tokens, pieces joined.
pub const TOKENS: Lines = Lines { references: "reference.tok", translations: "hypotheses.tok" };
/// Plain text.
pub const PLAIN: Lines = Lines { references: "reference.txt", translations: "hypotheses.txt" };
/// Likelihoods in a language model's run.
pub const LIKELIHOODS: &str = "likelihoods.json";
/// Tokens at least in a stretch. The tokens of a line belong together, and many lines are headings or empty.
pub const STRETCH_TOKENS: u64 = 200;

/// Stretches of every text, by its name.
pub type Likelihoods = BTreeMap<String, Vec<Stretch>>;

/// Reads a file of lines; `None` if it does not exist.
pub fn read_lines(path: &Path) -> Result<Option<Vec<String>>> {
    Ok(read_if_there(path)?.map(|text| text.lines().map(str::to_owned).collect()))
}

/// Joins lines with their ends.
pub(crate) fn joined(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// Reads the likelihoods of a run; empty if it has none.
pub(crate) fn read_likelihoods(run: &Path) -> Result<Likelihoods> {
    let path = run.join(LIKELIHOODS);
    let Some(text) = read_if_there(&path)? else { return Ok(Likelihoods::new()) };
    let advice = "without it there is no p, so remove it or the run's folder";
    serde_json::from_str(&text).map_err(|source| Error::Damaged { path, advice, source })
}
