//! Options of the training run that wrote a checkpoint.

use crate::pickle::{Id, Pickle, Value};

/// Options of a training run: `args` or `cfg["model"]`.
pub(super) struct Args<'a> {
    pickle: &'a Pickle,
    ids: Vec<Id>,
}

impl<'a> Args<'a> {
    pub(super) fn of(pickle: &'a Pickle) -> Option<Self> {
        let is_there = |id: &Id| *pickle.value(*id) != Value::None;
        let args = pickle.get(pickle.root, "args").filter(is_there);
        let config = pickle.get(pickle.root, "cfg").filter(is_there);
        let ids = match (args, config) {
            (Some(args), _) => vec![args],
            // Languages are options of the task.
            (None, Some(config)) => {
                ["model", "task"].iter().filter_map(|part| pickle.get(config, part)).collect()
            }
            (None, None) => Vec::new(),
        };
        (!ids.is_empty()).then_some(Self { pickle, ids })
    }

    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.ids.iter().find_map(|&id| self.pickle.get(id, key)).map(|id| self.pickle.value(id))
    }

    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        match self.value(key) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_set(&self, key: &str) -> bool {
        match self.value(key) {
            Some(Value::Bool(value)) => *value,
            Some(Value::Int(value)) => *value != 0,
            _ => false,
        }
    }

    pub(super) fn size(&self, key: &str) -> Option<usize> {
        match self.value(key) {
            Some(Value::Int(value)) => usize::try_from(*value).ok(),
            Some(Value::Float(value)) if *value >= 0.0 => Some(*value as usize),
            _ => None,
        }
    }

    /// Numbers with commas between, or a list of them.
    pub(super) fn sizes(&self, key: &str) -> Option<Vec<usize>> {
        match self.value(key)? {
            Value::Text(text) => text.split(',').map(|part| part.trim().parse().ok()).collect(),
            Value::List(items) | Value::Tuple(items) => {
                items.iter().map(|&id| usize::try_from(self.pickle.int(id)?).ok()).collect()
            }
            _ => None,
        }
    }
}
