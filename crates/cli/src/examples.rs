//! Tests of the examples in the help of every command.

use clap::{Command, CommandFactory};

use crate::Cli;

/// Examples of a command: its help after the options.
fn help(command: &Command) -> String {
    command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default()
}

/// All commands and subcommands by their full names.
fn commands() -> Vec<(String, Command)> {
    fn collect(name: &str, command: &Command, all: &mut Vec<(String, Command)>) {
        all.push((name.to_owned(), command.clone()));
        for subcommand in command.get_subcommands() {
            collect(&format!("{name} {}", subcommand.get_name()), subcommand, all);
        }
    }
    let mut all = Vec::new();
    collect("mae", &Cli::command(), &mut all);
    all
}

/// Words of the `mae` commands in a help text: lines with four blanks in front, continued after a backslash.
fn command_lines(help: &str) -> Vec<Vec<String>> {
    let joined = help.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.strip_prefix("    "));
    lines.flat_map(pipeline).filter(|words| words.first().is_some_and(|word| word == "mae")).collect()
}

/// Commands of a pipeline as words, without redirections.
fn pipeline(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut words = shell_words(line).into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "|" => commands.push(Vec::new()),
            "<" | ">" => drop(words.next()),
            _ => commands.last_mut().expect("one at least").push(word),
        }
    }
    commands
}

/// Words of a line, quotes removed. Enough of a shell's rules for the examples.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    assert_eq!(quote, None, "a quote is not closed: {line}");
    words.extend(word);
    words
}

#[test]
fn every_command_has_examples_of_its_own() {
    for (name, command) in commands() {
        let help = help(&command);
        assert!(help.starts_with("Examples:\n"), "`{name} --help` has no section \"Examples:\"");
        let of_its_own = |words: &Vec<String>| words.join(" ").starts_with(&name);
        assert!(command_lines(&help).iter().any(of_its_own), "`{name} --help` has no example of the command");
    }
}

#[test]
fn every_example_parses() {
    for (name, command) in commands() {
        for words in command_lines(&help(&command)) {
            if let Err(error) = Cli::command().try_get_matches_from(&words) {
                panic!("`{name} --help` has an example that is refused, {words:?}: {error}");
            }
        }
    }
}

#[test]
fn examples_fit_the_width_of_the_help() {
    for (name, command) in commands() {
        for line in help(&command).lines() {
            // Commands can be copied from a terminal of 80 columns.
            let most = if line.starts_with("    ") { 80 } else { 100 };
            assert!(line.chars().count() <= most, "`{name} --help` would break this line: {line}");
        }
    }
}

#[test]
fn words_are_split_as_a_shell_does() {
    let line = "printf 'a  b\\t' | mae score --sys - --ref \"c d\" > out";
    let expected = [vec!["printf", "a  b\\t"], vec!["mae", "score", "--sys", "-", "--ref", "c d"]];
    assert_eq!(pipeline(line), expected);
    assert_eq!(command_lines(&format!("  Text\n    {line}\n    mae a \\\n        b")).len(), 2);
}
