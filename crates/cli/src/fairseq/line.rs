//! A command line taken apart.

use std::path::Path;

use mae_model::folder::Task;
use mae_model::lm::folder::DICT;
use mae_train::Recipe;

use super::Written;
use super::list::{self, Values};
use super::rule::{self, Answer, Rule};

/// A command line on the way from fairseq's words to ours.
pub struct Line {
    /// Our name of the command.
    pub command: &'static str,
    /// Whom it was written for.
    pub(super) written: Written,
    /// Flags of fairseq with their values, by their first names, in order.
    given: Vec<(String, String)>,
    /// The model that `--path` names.
    model: Option<String>,
    words: Vec<String>,
    left_out: Vec<String>,
}

impl Line {
    /// Takes the words after the command apart, and applies the rules.
    pub(super) fn read(command: &'static str, written: Written, words: &[&str]) -> Result<Self, String> {
        let mut entries = entries(command, words)?;
        if written == Written::ForFairseq {
            // Of a flag that is given twice the last one counts.
            let flags: Vec<Option<&str>> = entries.iter().map(|entry| entry.flag).collect();
            let mut at = 0;
            entries.retain(|entry| {
                at += 1;
                entry.flag.is_none() || !flags[at..].contains(&entry.flag)
            });
        }
        let flags = entries.iter().filter_map(|entry| Some((entry.flag?.to_owned(), entry.value.clone())));
        let given = flags.collect();
        let mut line = Self { command, written, given, model: None, words: Vec::new(), left_out: Vec::new() };
        let (ours, theirs): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.rule.is_none());
        line.words = ours.into_iter().flat_map(|entry| entry.words).collect();
        for Entry { flag, rule, value, .. } in theirs {
            if let (Some(flag), Some(rule)) = (flag, rule) {
                line.apply(flag, rule, &value)?;
            }
        }
        Ok(line)
    }

    fn apply(&mut self, flag: &str, rule: Rule, value: &str) -> Result<(), String> {
        let answer = match rule {
            Rule::Same => Answer::nothing(),
            Rule::Key(key) => Answer::key(key, value),
            Rule::Keys(keys) => {
                Answer::Words(keys.split(' ').flat_map(|key| ["--set".to_owned(), key.to_owned()]).collect())
            }
            Rule::Words(words) => {
                let words = words.split(' ').chain((!value.is_empty()).then_some(value));
                Answer::Words(words.map(str::to_owned).collect())
            }
            Rule::Unneeded(why) => Answer::LeftOut(why.to_owned()),
            Rule::Unsupported(instead) => Answer::Refused(instead.to_owned()),
            Rule::Only(only, _) if only == value => Answer::nothing(),
            Rule::Only(_, why) => Answer::Refused(format!("only {why}")),
            Rule::By(by, text) => match by(flag, value, self) {
                Answer::Otherwise => Answer::Refused(format!("only {text}")),
                answer => answer,
            },
        };
        match answer {
            Answer::Words(words) => self.words.extend(words),
            Answer::Otherwise => {}
            Answer::LeftOut(why) => self.left_out.push(format!("{flag} ({why})")),
            Answer::Refused(why) => {
                let value = if value.is_empty() { String::new() } else { format!(" {value}") };
                return Err(format!("{flag}{value} of fairseq: {why}"));
            }
        }
        Ok(())
    }

    /// Value of a flag of fairseq, if it was given; the last one counts.
    pub fn value(&self, flag: &str) -> Option<&str> {
        self.given.iter().rev().find(|(name, _)| name == flag).map(|(_, value)| value.as_str())
    }

    /// Returns whether a flag of fairseq was given.
    pub fn has(&self, flag: &str) -> bool {
        self.value(flag).is_some()
    }

    /// Returns whether it was written for fairseq.
    pub fn is_fairseqs(&self) -> bool {
        self.written == Written::ForFairseq
    }

    /// Returns whether it is about a language model: by its task, its architecture, our recipe, or the data.
    pub fn is_language_model(&self) -> bool {
        if let Some(task) = self.value("--task") {
            return task == "language_modeling";
        }
        if let Some(arch) = self.value("--arch") {
            return arch.starts_with("transformer_lm");
        }
        match self.recipe() {
            Some(name) => Recipe::load(name).is_ok_and(|recipe| recipe.task() == Task::LanguageModeling),
            None => self.words.iter().any(|word| Path::new(word).join(DICT).is_file()),
        }
    }

    /// The recipe of our own flag.
    fn recipe(&self) -> Option<&str> {
        let at = self.words.iter().position(|word| word == "--recipe" || word.starts_with("--recipe="))?;
        self.words[at].strip_prefix("--recipe=").or_else(|| self.words.get(at + 1).map(String::as_str))
    }

    /// Sets the model, which our commands take first.
    pub fn set_model(&mut self, model: String) {
        self.model = Some(model);
    }

    /// Adds words of ours. Those at the beginning are overridden by what the line says.
    pub fn add_first(&mut self, words: &[&str]) {
        self.words.splice(0..0, words.iter().map(|word| (*word).to_owned()));
    }

    /// All words after the command, and the flags that were left out.
    pub(super) fn finish(self) -> Result<(Vec<String>, Vec<String>), String> {
        Ok((self.model.into_iter().chain(self.words).collect(), self.left_out))
    }
}

/// A word, or a flag with its values.
struct Entry {
    /// Name of a flag of fairseq.
    flag: Option<&'static str>,
    /// Rule of a flag that does not stay as it is.
    rule: Option<Rule>,
    /// The value of a flag; empty without one.
    value: String,
    /// The words as they were given.
    words: Vec<String>,
}

/// Takes words apart.
fn entries(command: &'static str, words: &[&str]) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        let plain = |words: Vec<String>| Entry { flag: None, rule: None, value: String::new(), words };
        if word == "--" {
            let rest = words.by_ref().map(str::to_owned);
            entries.push(plain([word.to_owned()].into_iter().chain(rest).collect()));
            break;
        }
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value)),
            _ => (word, None),
        };
        let listed = if name.starts_with('-') { list::find(command, name) } else { None };
        let rule = listed.as_ref().and_then(|listed| rule::find(command, listed.flag));
        let (Some(listed), Some(rule)) = (listed, rule) else {
            entries.push(plain(vec![word.to_owned()]));
            continue;
        };
        let is_value = |next: &&str| !next.starts_with('-');
        let taken: Vec<&str> = match listed.values {
            _ if inline.is_some() => Vec::new(),
            Values::None => Vec::new(),
            Values::One => words.next().into_iter().collect(),
            Values::Optional => words.next_if(is_value).into_iter().collect(),
            Values::Several => std::iter::from_fn(|| words.next_if(is_value)).collect(),
        };
        if taken.is_empty() && inline.is_none() && listed.values == Values::One {
            return Err(format!("{name} needs a value"));
        }
        let value = inline.or(taken.first().copied()).unwrap_or("").to_owned();
        let words = std::iter::once(word).chain(taken).map(str::to_owned).collect();
        let rule = (!matches!(rule, Rule::Same)).then_some(rule);
        entries.push(Entry { flag: Some(listed.flag), rule, value, words });
    }
    Ok(entries)
}
