//! fairseq's flags and their numbers of values.

/// Commands that have a counterpart in fairseq, by our names.
pub const COMMANDS: [&str; 8] =
    ["preprocess", "train", "generate", "interactive", "eval-lm", "validate", "score", "average"];

/// A line each: command, flag, number of values, other names. Made by `tools/fairseq_flags.py`.
const LIST: &str = include_str!("../../../../tools/fairseq_flags.tsv");

/// Values of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// None.
    None,
    /// One.
    One,
    /// One or none.
    Optional,
    /// One or more.
    Several,
}

/// A flag of fairseq.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Our name of the command.
    pub command: &'static str,
    /// Name with dashes.
    pub flag: &'static str,
    /// Values that follow it.
    pub values: Values,
    /// Its other names.
    pub aliases: Vec<&'static str>,
}

/// Flags that fairseq had before 0.12 and that are in many scripts: command, flag and number of values.
const OLDER: [(&str, &str, Values); 9] = [
    ("train", "--max-lr", Values::One),
    ("train", "--raw-text", Values::None),
    ("train", "--lazy-load", Values::None),
    ("generate", "--raw-text", Values::None),
    ("generate", "--lazy-load", Values::None),
    ("generate", "--max-target-positions", Values::One),
    ("generate", "--print-score", Values::None),
    ("interactive", "--raw-text", Values::None),
    ("eval-lm", "--raw-text", Values::None),
];

/// All flags of fairseq 0.12.
pub fn flags() -> impl Iterator<Item = Listed> {
    LIST.lines().map(|line| {
        let mut cells = line.split('\t');
        let mut cell = || cells.next().unwrap_or("");
        let (command, flag, count) = (cell(), cell(), cell());
        let values = match count {
            "0" => Values::None,
            "?" => Values::Optional,
            "+" => Values::Several,
            _ => Values::One,
        };
        Listed { command, flag, values, aliases: cell().split(' ').filter(|name| !name.is_empty()).collect() }
    })
}

/// The flag of a command that has this name. `mae validate` has the flags of fairseq-generate.
pub fn find(command: &str, name: &str) -> Option<Listed> {
    let command = if command == "validate" { "generate" } else { command };
    let named = |listed: &Listed| listed.flag == name || listed.aliases.contains(&name);
    let older = OLDER.iter().map(|(command, flag, values)| Listed {
        command,
        flag,
        values: *values,
        aliases: Vec::new(),
    });
    flags().chain(older).find(|listed| listed.command == command && named(listed))
}
