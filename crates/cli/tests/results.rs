//! Every number in the tables of docs/results.md, and of the README's results, comes from a file in results/.
//!
//! A comment before each table names its files. A number with decimals must be a value of such a file, rounded, or a mean,
//! a deviation over seeds or a difference to BASE of values of its runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Values of a run by their paths.
type Flat = BTreeMap<String, f64>;

/// Begins the comment before a table; then follow names of files, or `none` and the reason.
const COMMENT: &str = "<!-- numbers: ";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn flatten(value: &Value, path: &str, found: &mut Flat) {
    match value {
        Value::Number(number) => {
            found.insert(path.to_owned(), number.as_f64().unwrap());
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(i, value)| flatten(value, &format!("{path}.{i}"), found));
        }
        Value::Object(values) => {
            values.iter().for_each(|(key, value)| flatten(value, &format!("{path}.{key}"), found));
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The values of a run, and what one expert changes.
fn of_run(run: &Value) -> Flat {
    let mut flat = Flat::new();
    flatten(run, "", &mut flat);
    let one_expert =
        [&run["one_expert"], &run["translation"]["one_expert"]].into_iter().find(|v| v.is_object());
    if let Some(scores) = one_expert {
        let mixture = [&scores["mixture"], &run["bleu_tokenised"], &run["bleu_13a"]];
        let mixture = mixture.into_iter().find_map(Value::as_f64).unwrap();
        if let Some(argmax) = scores["argmax"].as_f64() {
            flat.insert("argmax - mixture".into(), argmax - mixture);
        }
        let random: Vec<f64> =
            scores["random"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        if !random.is_empty() {
            flat.insert("random - mixture".into(), mean(&random) - mixture);
        }
    }
    flat
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean and the sample standard deviation.
fn spread(values: &[f64]) -> Vec<f64> {
    let squares: f64 = values.iter().map(|value| (value - mean(values)).powi(2)).sum();
    match values.len() {
        0 => Vec::new(),
        1 => vec![mean(values)],
        count => vec![mean(values), (squares / (count - 1) as f64).sqrt()],
    }
}

/// System and seed of a run's name.
fn parts(name: &str) -> (&str, &str) {
    name.rsplit_once('-').filter(|(_, seed)| seed.parse::<u64>().is_ok()).unwrap_or((name, ""))
}

/// All values of a file, and those that follow from its runs.
fn values(name: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(repository().join("results").join(name));
    let file: Value = serde_json::from_str(&text.unwrap_or_else(|error| panic!("{name}: {error}"))).unwrap();
    let mut all = Flat::new();
    flatten(&file, "", &mut all);
    let mut found: Vec<f64> = all.into_values().collect();
    let mut systems: BTreeMap<String, BTreeMap<String, Flat>> = BTreeMap::new();
    let mut add = |system: &str, seed: &str, run: &Value| {
        systems.entry(system.to_owned()).or_default().insert(seed.to_owned(), of_run(run));
    };
    match [&file["runs"], &file["systems"]].into_iter().find(|runs| !runs.is_null()) {
        Some(Value::Object(runs)) => runs.iter().for_each(|(name, run)| {
            let (system, seed) = parts(name);
            add(system, seed, run);
        }),
        Some(Value::Array(runs)) => runs.iter().for_each(|run| {
            add(run["system"].as_str().unwrap(), &run["seed"].to_string(), run);
        }),
        _ => {}
    }
    let base = systems.get("base").cloned().unwrap_or_default();
    for runs in systems.values() {
        let paths: std::collections::BTreeSet<&String> = runs.values().flat_map(BTreeMap::keys).collect();
        for path in paths {
            let own: Vec<f64> = runs.values().filter_map(|run| run.get(path).copied()).collect();
            let difference =
                |(seed, run): (&String, &Flat)| Some(run.get(path)? - base.get(seed)?.get(path)?);
            let differences: Vec<f64> = runs.iter().filter_map(difference).collect();
            found.extend(spread(&own));
            found.extend(spread(&differences));
            found.extend(differences);
        }
    }
    found
}

/// The numbers with decimals of a line, as they are printed, without signs; targets of links are left out.
fn printed(line: &str) -> Vec<String> {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("](") {
        text.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    text.push_str(rest);
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches(['.', ',']).replace(',', ""));
    words.filter(|word| word.matches('.').count() == 1 && word.parse::<f64>().is_ok()).collect()
}

/// Returns whether a printed number is one of `values`, rounded; per cent and millions are scaled.
fn is_among(number: &str, values: &[f64]) -> bool {
    let decimals = number.split_once('.').map_or(0, |(_, after)| after.len()) as i32;
    // Files are rounded themselves.
    let (wanted, room) = (number.parse::<f64>().unwrap(), 0.52 * 10f64.powi(-decimals));
    values
        .iter()
        .any(|value| [1.0, 100.0, 1e-6].iter().any(|scale| (value.abs() * scale - wanted).abs() <= room))
}

#[test]
fn every_number_of_a_table_is_in_its_file() {
    let page = std::fs::read_to_string(repository().join("docs/results.md")).unwrap();
    let (mut known, mut checked, mut faults): (Option<Vec<f64>>, usize, Vec<String>) = (None, 0, Vec::new());
    for (number, line) in (1..).zip(page.lines()) {
        if let Some(names) = line.strip_prefix(COMMENT) {
            let names = names.trim_end_matches("-->").trim();
            let of_files = || names.split(' ').flat_map(values).collect();
            known = Some(if names.starts_with("none") { Vec::new() } else { of_files() });
        } else if !line.starts_with('|') {
            known = known.filter(|_| line.is_empty());
        } else {
            match &known {
                None => faults.push(format!("line {number}: a table without a comment that names its files")),
                Some(values) if values.is_empty() => {}
                Some(values) => {
                    let numbers = printed(line);
                    checked += numbers.len();
                    let missing = numbers.into_iter().filter(|printed| !is_among(printed, values));
                    faults.extend(
                        missing.map(|printed| format!("line {number}: {printed} is in none of its files")),
                    );
                }
            }
        }
    }
    assert!(faults.is_empty(), "docs/results.md:\n{}", faults.join("\n"));
    assert!(checked > 250, "only {checked} numbers were found");
}

#[test]
fn the_readme_has_numbers_of_the_files() {
    let page = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let (_, after) = page.split_once("\n## Results\n").expect("a section of results");
    let section = after.split_once("\n## ").map_or(after, |(section, _)| section);
    let names = std::fs::read_dir(repository().join("results")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let known: Vec<f64> =
        names.filter(|name| name.ends_with(".json")).flat_map(|name| values(&name)).collect();
    let tables = section.lines().filter(|line| line.starts_with('|'));
    let numbers: Vec<String> = tables.flat_map(printed).collect();
    assert!(numbers.len() > 20, "{numbers:?}");
    for number in numbers {
        assert!(is_among(&number, &known), "README.md: {number} is in no file of results/");
    }
}

#[test]
fn a_number_that_is_nowhere_is_found_out() {
    let values = values("paper.json");
    assert!(is_among("35.5", &values) && !is_among("35.7", &values));
    assert_eq!(printed("| MAE-7 | **−0.5** ± 1,234.25 ([x](../a-1.5.json), 7, 2.) |"), ["0.5", "1234.25"]);
}
