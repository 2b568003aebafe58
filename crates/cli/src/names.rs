//! Names that people try: `mae translate MODEL FILE` prints plain translations, one for each line.

use std::ffi::OsString;

/// Layouts and choices that say what to print.
const LAYOUTS: [&str; 6] = ["--plain", "--jsonl", "--quiet", "--nbest", "--help", "-h"];

/// Puts `generate --plain` for `translate`, unless the line chooses a layout.
pub fn expand(mut words: Vec<OsString>) -> Vec<OsString> {
    let at = words.iter().skip(1).position(|word| !word.to_string_lossy().starts_with('-')).map(|at| at + 1);
    let Some(at) = at.filter(|at| words[*at] == "translate") else { return words };
    words[at] = "generate".into();
    let has_layout = words.iter().any(|word| {
        let word = word.to_string_lossy();
        LAYOUTS.iter().any(|layout| word.split('=').next() == Some(*layout))
    });
    if !has_layout {
        words.insert(at + 1, "--plain".into());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translate_prints_lines() {
        let expanded = |line: &str| {
            let words = expand(line.split(' ').map(Into::into).collect());
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(expanded("mae translate m f"), "mae generate --plain m f");
        assert_eq!(expanded("mae translate m f --nbest=3"), "mae generate m f --nbest=3");
        assert_eq!(expanded("mae train translate"), "mae train translate");
        assert_eq!(expanded("mae"), "mae");
    }
}
