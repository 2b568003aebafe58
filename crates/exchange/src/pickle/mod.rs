//! Pickles as inert data. Names are never resolved and nothing is ever called: a class or a function is its name, a call
//! is the name with its arguments. Values are nodes of an arena, so that a value that is there twice is stored once, and
//! cycles do no harm.

mod read;

pub use read::{Limits, read};

/// A value of a pickle by its number.
pub type Id = usize;

/// A value. Contents of containers are numbers of other values.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer; those that take more than 64 bits are refused.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text, or a byte string of Python 2.
    Text(Box<str>),
    /// Bytes.
    Bytes(Box<[u8]>),
    /// A list, a set or a frozen set.
    List(Vec<Id>),
    /// A tuple.
    Tuple(Vec<Id>),
    /// A dictionary, in the order of its entries.
    Dict(Vec<(Id, Id)>),
    /// A class or a function by its name: `module.name`.
    Name(Box<str>),
    /// A call that is not carried out, with what was set on its result.
    Call(Box<Call>),
    /// A reference to something outside of the pickle.
    Outside(Id),
}

/// A call: what would be called, its arguments, the state and the items that would be set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// Value that would be called.
    pub callee: Id,
    /// Arguments, a tuple.
    pub arguments: Id,
    /// State that would be set.
    pub state: Option<Id>,
    /// Entries that would be set.
    pub entries: Vec<(Id, Id)>,
    /// Values that would be appended.
    pub items: Vec<Id>,
}

/// A pickle: its values and the one that it stands for.
#[derive(Clone, Debug)]
pub struct Pickle {
    values: Vec<Value>,
    /// The value that the pickle stands for.
    pub root: Id,
}

impl Pickle {
    /// A value by its number.
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id]
    }

    /// All values.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// Text of a value.
    pub fn text(&self, id: Id) -> Option<&str> {
        match self.value(id) {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Integer of a value.
    pub fn int(&self, id: Id) -> Option<i64> {
        match self.value(id) {
            Value::Int(int) => Some(*int),
            _ => None,
        }
    }

    /// Values of a list or a tuple.
    pub fn items(&self, id: Id) -> Option<&[Id]> {
        match self.value(id) {
            Value::List(items) | Value::Tuple(items) => Some(items),
            _ => None,
        }
    }

    /// Sizes of a tuple of integers.
    pub fn sizes(&self, id: Id) -> Option<Vec<usize>> {
        self.items(id)?.iter().map(|&item| usize::try_from(self.int(item)?).ok()).collect()
    }

    /// The call of a function or class by its name, with its arguments.
    pub fn call(&self, id: Id) -> Option<(&str, &[Id])> {
        let Value::Call(call) = self.value(id) else { return None };
        let Value::Name(name) = self.value(call.callee) else { return None };
        Some((name, self.items(call.arguments)?))
    }

    /// Entries of a dictionary, of an ordered dictionary, or of an object: those of its state.
    pub fn entries(&self, id: Id) -> Vec<(Id, Id)> {
        match self.value(id) {
            Value::Dict(entries) => entries.clone(),
            Value::Call(call) => {
                let mut entries = call.entries.clone();
                // OrderedDict([[key, value], …]) of old pickles.
                let pairs = self.items(call.arguments).and_then(|arguments| self.items(*arguments.first()?));
                for pair in pairs.unwrap_or_default() {
                    if let Some(&[key, value]) = self.items(*pair) {
                        entries.push((key, value));
                    }
                }
                if let Some(Value::Dict(state)) = call.state.map(|state| self.value(state)) {
                    entries.extend(state);
                }
                entries
            }
            _ => Vec::new(),
        }
    }

    /// The value of a key.
    pub fn get(&self, id: Id, key: &str) -> Option<Id> {
        self.entries(id).into_iter().find(|(name, _)| self.text(*name) == Some(key)).map(|(_, value)| value)
    }
}
