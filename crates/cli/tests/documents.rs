//! The documents of the repository: links lead somewhere, and lines of prose are short.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Most characters of a line of prose.
const WIDTH: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Folders that hold documents, besides the root itself.
const FOLDERS: [&str; 7] = ["configs", "crates", "docs", "fixtures", "fuzz", "results", "tools"];

/// Every Markdown file of the repository, with its text.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if folder != root() && name != "target" || FOLDERS.contains(&name) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                found.push((path, text));
            }
        }
    }
    assert!(found.iter().any(|(path, _)| path.ends_with("docs/formats.md")), "{found:?}");
    found
}

/// Lines outside of fenced and indented code, each with its number from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let numbered = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    numbered
        .filter(|(_, line)| {
            let is_fence = line.trim_start().starts_with("```");
            fenced ^= is_fence;
            !fenced && !is_fence && !line.starts_with("    ")
        })
        .collect()
}

/// Targets of the links of a text: the part between `](` and `)`.
fn links(text: &str) -> Vec<&str> {
    let ends = text.match_indices("](").map(|(at, mark)| &text[at + mark.len()..]);
    ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// Anchors of the headings of a text, as GitHub makes them.
fn anchors(text: &str) -> HashSet<String> {
    let headings = prose(text).into_iter().filter_map(|(_, line)| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let kept = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = kept.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    for (path, text) in documents() {
        let whole: String = prose(&text).iter().map(|(_, line)| format!("{line}\n")).collect();
        for target in links(&whole).into_iter().filter(|target| !target.contains("://")) {
            let (file, anchor) =
                target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let linked = match file {
                "" => path.clone(),
                file => path.parent().expect("a folder").join(file),
            };
            assert!(linked.exists(), "{}: {target} does not exist", path.display());
            let Some(anchor) = anchor else { continue };
            let text = std::fs::read_to_string(&linked).expect("a document");
            assert!(anchors(&text).contains(anchor), "{}: no heading for {target}", path.display());
        }
    }
}

#[test]
fn lines_of_prose_are_short() {
    for (path, text) in documents() {
        for (number, line) in prose(&text) {
            // A table, an image and a word without a blank (a link) cannot be broken.
            let text = line.trim_start();
            let unbreakable = text.starts_with(['|', '!']) || !text.trim_start_matches("- ").contains(' ');
            let length = line.chars().count();
            assert!(unbreakable || length <= WIDTH, "{}:{number}: {length} characters", path.display());
        }
    }
}

#[test]
fn headings_become_anchors() {
    let text = "# The paper's `a.toml`: one, two\n```\n# not this\n```\n## Pre-norm";
    assert_eq!(anchors(text), HashSet::from(["the-papers-atoml-one-two".into(), "pre-norm".into()]));
    assert_eq!(links("[a](b.md#c) and [d](e)"), ["b.md#c", "e"]);
}
