//! The files of the crate form no cycles: each can be read after those that it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Source files by the paths of their modules, `measure::text` say.
fn modules(folder: &Path, prefix: &str, found: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let full = if prefix.is_empty() { name.clone() } else { format!("{prefix}::{name}") };
        if path.is_dir() {
            modules(&path, &full, found);
        } else if name == "mod" {
            found.insert(prefix.to_owned(), std::fs::read_to_string(&path).unwrap());
        } else if name != "lib" {
            found.insert(full, std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The paths of a file's code that begin with `crate::`, `self::` or `super::`, as whole paths.
fn paths(module: &str, text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect();
    let parent = |path: &str| path.rsplit_once("::").map_or(String::new(), |(parent, _)| parent.to_owned());
    let mut found = Vec::new();
    for start in ["crate::", "self::", "super::"] {
        for (at, _) in code.match_indices(start) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let rest = &code[at + start.len()..];
            let end =
                rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
            let base = match start {
                "crate::" => String::new(),
                "self::" => module.to_owned(),
                // A module of a file inside is one step deeper: `super` of tests is the file itself.
                _ if code[..at].contains("mod tests {") => module.to_owned(),
                _ => parent(module),
            };
            let mut names: Vec<String> = vec![rest[..end].trim_end_matches(':').to_owned()];
            if rest[end..].starts_with('{') {
                let list = &rest[end + 1..rest.find('}').unwrap()];
                let prefix = rest[..end].to_owned();
                names = list.split(',').map(|name| format!("{prefix}{}", name.trim())).collect();
            }
            found.extend(names.into_iter().map(|name| match base.as_str() {
                "" => name,
                base => format!("{base}::{name}"),
            }));
        }
    }
    // A folder's file uses its rooms, which therefore must not use it.
    for line in code.lines().filter(|line| line.ends_with(';')) {
        let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        found.extend(
            line.strip_prefix("mod ").map(|room| format!("{module}::{}", room.trim_end_matches(';'))),
        );
    }
    found
}

/// The module that a path leads to: the longest one that begins it.
fn target<'a>(path: &str, modules: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let leads = |module: &&String| path == *module || path.starts_with(&format!("{module}::"));
    modules.keys().filter(leads).max_by_key(|module| module.len()).map(String::as_str)
}

/// A cycle of modules, if there is one.
fn cycle(uses: &BTreeMap<&str, BTreeSet<&str>>) -> Option<Vec<String>> {
    fn visit<'a>(
        at: &'a str,
        uses: &BTreeMap<&'a str, BTreeSet<&'a str>>,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<String>> {
        if let Some(start) = way.iter().position(|module| *module == at) {
            return Some(way[start..].iter().chain([&at]).map(ToString::to_string).collect());
        }
        if !done.insert(at) {
            return None;
        }
        way.push(at);
        let found = uses.get(at).into_iter().flatten().find_map(|next| visit(next, uses, way, done));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| visit(module, uses, &mut Vec::new(), &mut done))
}

fn uses(modules: &BTreeMap<String, String>) -> BTreeMap<&str, BTreeSet<&str>> {
    let of = |module: &String, text: &String| {
        let targets = paths(module, text).into_iter().filter_map(|path| target(&path, modules));
        targets.filter(|other| other != module).collect::<BTreeSet<&str>>()
    };
    modules.iter().map(|(module, text)| (module.as_str(), of(module, text))).collect()
}

#[test]
fn files_form_no_cycles() {
    let mut found = BTreeMap::new();
    modules(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut found);
    let uses = uses(&found);
    assert!(found.len() > 15 && uses["session"].contains("runner"), "{uses:?}");
    assert!(uses["runner"].contains("measure"), "{uses:?}");
    if let Some(cycle) = cycle(&uses) {
        panic!("files use each other in a circle: {}", cycle.join(" → "));
    }
}

#[test]
fn a_cycle_is_found() {
    let files = [
        ("compare", "use crate::score::Score;\nuse super::significance::{p, q};"),
        ("score", "// crate::compare is not used\nfn f() { tests::crate_like() }"),
        ("significance", "fn f() { crate::compare::value() }"),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let uses = uses(&files);
    assert!(uses["score"].is_empty() && uses["compare"].len() == 2, "{uses:?}");
    assert_eq!(cycle(&uses).unwrap(), ["compare", "significance", "compare"]);
    // A room that uses what its folder's file defines.
    let files = [("measure", "mod text;\npub struct Scores;"), ("measure::text", "use super::Scores;")];
    let files = files.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    assert_eq!(cycle(&self::uses(&files)).unwrap(), ["measure", "measure::text", "measure"]);
}
