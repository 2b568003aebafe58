//! Libraries do not know the program: they do not print, and their messages name neither its flags nor its commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that are programs, and may do both.
const PROGRAMS: [&str; 1] = ["cli"];

/// Flags of another program: of NVRTC, the compiler of the CUDA kernels.
const OTHERS: [&str; 3] = ["--gpu-architecture=", "--std=c++17", "--Ofast-compile="];

/// Code that writes to the terminal.
const PRINTING: [&str; 7] =
    ["println!", "print!", "eprintln!", "eprint!", "dbg!", "io::stdout(", "io::stderr("];

#[test]
fn libraries_neither_print_nor_name_flags_and_commands() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let commands = commands();
    let libraries =
        entries(&crates).into_iter().filter(|path| !PROGRAMS.iter().any(|name| path.ends_with(name)));
    let files: Vec<PathBuf> = libraries.flat_map(|library| sources(&library.join("src"))).collect();
    assert!(files.len() > 200, "only {} files were found", files.len());
    let mut faults = Vec::new();
    for path in &files {
        let place = path.strip_prefix(&crates).unwrap().display();
        for (line, what) in faults_of(&fs::read_to_string(path).unwrap(), &commands) {
            faults.push(format!("crates/{place}:{line}: {what}"));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn prints_flags_and_commands_are_found() {
    let commands = ["train".to_owned(), "learn-bpe".to_owned()];
    let found = |text: &str| -> Vec<String> {
        faults_of(text, &commands).into_iter().map(|(line, what)| format!("{line} {what}")).collect()
    };
    assert_eq!(found("f();\n    println!(\"x\");\neprint!(\"y\");"), ["2 println!", "3 eprint!"]);
    assert_eq!(
        found("\"use --beam\"\n\"(--set x)\"\n\"`mae train`\""),
        ["1 --beam", "2 --set", "3 mae train"]
    );
    assert_eq!(found("let a = \"two \\\n    --beam\"; // and more\n"), ["2 --beam"]);
    assert_eq!(found("\"see http://x, mae learn-bpe\""), ["1 mae learn-bpe"]);
    let innocent = "/// `mae train --beam`\n//! eprintln!\nlet a = \"a -- b, mae tried, x--y\"; // --beam\n\
                    \"--std=c++17\"\n#[cfg(test)]\nmod tests {\n    println!(\"--beam\");\n}\n";
    assert_eq!(found(innocent), [] as [&str; 0]);
}

/// Names of the program's commands, as its help lists them.
fn commands() -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_mae")).arg("--help").output().expect("the program starts");
    let help = String::from_utf8(output.stdout).unwrap();
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<String> =
        names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.iter().any(|name| name == "train"), "{help}");
    names
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Source files below a folder, but for those of tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let paths =
        entries(folder).into_iter().filter(|path| path.file_stem().is_some_and(|name| name != "tests"));
    let files = paths.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

/// Faults of a source file, with their lines. Comments, and the module of tests at its end, are left out.
fn faults_of(text: &str, commands: &[String]) -> Vec<(usize, String)> {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let mut faults = Vec::new();
    for (number, line) in text[..end].lines().enumerate() {
        let is_comment =
            |(at, _): &(usize, &str)| line[..*at].trim().is_empty() || line[..*at].ends_with(' ');
        let comment = line.match_indices("//").find(is_comment).map_or(line.len(), |(at, _)| at);
        let code = &line[..comment];
        let found = print(code).or_else(|| flag(code)).or_else(|| command(code, commands));
        faults.extend(found.map(|what| (number + 1, what)));
    }
    faults
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The first call that prints; `eprintln!` is not `println!`.
fn print(code: &str) -> Option<String> {
    let calls = |name: &&&str| code.match_indices(**name).any(|(at, _)| !code[..at].ends_with(is_word));
    PRINTING.iter().find(calls).map(|name| (*name).to_owned())
}

/// The first word that looks like a flag.
fn flag(code: &str) -> Option<String> {
    let mut words = code.split(|c: char| c.is_whitespace() || "`'\"()[]{},;:".contains(c));
    let is_flag = |word: &&str| {
        word.strip_prefix("--").is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
            && !OTHERS.iter().any(|other| word.starts_with(other))
    };
    words.find(is_flag).map(str::to_owned)
}

/// The first command of the program, as in `mae train`.
fn command(code: &str, commands: &[String]) -> Option<String> {
    let words: Vec<&str> = code.split(|c: char| !is_word(c) && c != '-').collect();
    let is_command = |pair: &&[&str]| pair[0] == "mae" && commands.iter().any(|name| name == pair[1]);
    words.windows(2).find(is_command).map(|pair| pair.join(" "))
}
