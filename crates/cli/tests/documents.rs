//! The documents of the repository: links and paths lead somewhere, and lines of prose are short.

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

/// Texts between backticks.
fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Paths that a text between backticks names, with braces expanded; none if it is not a path or has a placeholder.
fn paths(span: &str) -> Vec<String> {
    const ENDINGS: [&str; 7] = [".rs", ".toml", ".md", ".cu", ".cuh", ".py", ".js"];
    let of_path = |c: char| c.is_ascii_alphanumeric() || "_-./{},".contains(c);
    let is_path = span.contains('/') || ENDINGS.iter().any(|ending| span.ends_with(ending));
    if !is_path || span.starts_with('/') || !span.chars().all(of_path) {
        return Vec::new();
    }
    match span.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?))) {
        Some((start, (middle, end))) => middle.split(',').map(|part| format!("{start}{part}{end}")).collect(),
        None => vec![span.to_owned()],
    }
}

/// A path is relative to the root or, below a heading that names a folder, to this folder or its `src`.
#[test]
fn paths_of_the_guides_exist() {
    for name in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root().join(name)).expect("a guide");
        let mut bases = vec![root()];
        let mut seen = 0;
        for (number, line) in prose(&text) {
            if line.starts_with('#') {
                bases.truncate(1);
                let folder = code_spans(line).map(|span| root().join(span)).find(|path| path.is_dir());
                bases.extend(folder.into_iter().flat_map(|folder| [folder.join("src"), folder]));
            }
            for path in code_spans(line).flat_map(paths) {
                seen += 1;
                let exists = bases.iter().any(|base| base.join(&path).exists());
                assert!(exists, "{name}:{number}: there is no {path}");
            }
        }
        assert!(seen > 20, "{name} names {seen} paths");
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

#[test]
fn paths_are_found_between_backticks() {
    let spans: Vec<&str> = code_spans("`a/b` or `c.rs`, `x`").collect();
    assert_eq!(spans, ["a/b", "c.rs", "x"]);
    assert_eq!(paths("ops/{mod,cpu}.rs"), ["ops/mod.rs", "ops/cpu.rs"]);
    assert_eq!(paths("ops/<op>/mod.rs").len() + paths("x").len() + paths("cargo test a/b").len(), 0);
}
