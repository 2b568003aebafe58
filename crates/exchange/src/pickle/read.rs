//! The machine that reads pickles of protocols 0 to 5.

use rustc_hash::FxHashMap;

use super::{Call, Id, Pickle, Value};

/// Bounds of a pickle.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes.
    pub bytes: usize,
    /// Most values, copies of the same value not counted.
    pub values: usize,
    /// Most marks that are open at once.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 26, values: 1 << 21, depth: 1 << 10 }
    }
}

type Read<T> = Result<T, String>;

/// Most bytes of names that are put together of two texts: the texts may be stored once and named again and again.
const NAME_BYTES: usize = 1 << 20;

/// Reads the pickle at the start of `bytes`; returns it with its length.
pub fn read(bytes: &[u8], limits: Limits) -> Read<(Pickle, usize)> {
    let bytes = &bytes[..bytes.len().min(limits.bytes)];
    let mut machine = Machine {
        bytes,
        at: 0,
        limits,
        values: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: FxHashMap::default(),
        names: 0,
    };
    loop {
        let at = machine.at;
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => return Ok((Pickle { values: machine.values, root }, machine.at)),
            Err(what) => return Err(format!("byte {at} of the pickle: {what}")),
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    limits: Limits,
    values: Vec<Value>,
    stack: Vec<Id>,
    /// Heights of the stack at open marks.
    marks: Vec<usize>,
    memo: FxHashMap<u64, Id>,
    /// Bytes of names so far.
    names: usize,
}

impl<'a> Machine<'a> {
    fn take(&mut self, n: u64) -> Read<&'a [u8]> {
        let n = usize::try_from(n).ok().filter(|&n| n <= self.bytes.len() - self.at);
        let n = n.ok_or("it is cut off or too long")?;
        self.at += n;
        Ok(&self.bytes[self.at - n..self.at])
    }

    fn byte(&mut self) -> Read<u8> {
        Ok(self.take(1)?[0])
    }

    /// A little-endian number of `n` bytes.
    fn number(&mut self, n: usize) -> Read<u64> {
        Ok(self.take(n as u64)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// A line of text, without its end.
    fn line(&mut self) -> Read<&'a str> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n').ok_or("it is cut off")?;
        self.at += end + 1;
        std::str::from_utf8(&rest[..end])
            .map(|line| line.trim_end_matches('\r'))
            .map_err(|_| "no text".into())
    }

    fn add(&mut self, value: Value) -> Read<Id> {
        if self.values.len() >= self.limits.values {
            return Err(format!("more than {} values", self.limits.values));
        }
        self.values.push(value);
        Ok(self.values.len() - 1)
    }

    fn push(&mut self, value: Value) -> Read<()> {
        let id = self.add(value)?;
        self.push_id(id)
    }

    /// Puts a value on the stack, on which copies take room too.
    fn push_id(&mut self, id: Id) -> Read<()> {
        if self.stack.len() >= self.limits.values {
            return Err("the stack is too high".into());
        }
        self.stack.push(id);
        Ok(())
    }

    fn pop(&mut self) -> Read<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err("a value is missing".into());
        }
        self.stack.pop().ok_or_else(|| "a value is missing".into())
    }

    fn top(&self) -> Read<Id> {
        self.stack.last().copied().ok_or_else(|| "a value is missing".into())
    }

    /// The values above the last mark.
    fn since_mark(&mut self) -> Read<Vec<Id>> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        Ok(self.stack.split_off(mark))
    }

    fn text(&mut self, bytes: &[u8]) -> Read<()> {
        self.push(Value::Text(String::from_utf8_lossy(bytes).into()))
    }

    fn counted(&mut self, n: usize) -> Read<&'a [u8]> {
        let size = self.number(n)?;
        self.take(size)
    }

    /// Carries out an instruction; returns the value of the pickle at its end.
    fn step(&mut self) -> Read<Option<Id>> {
        let op = self.byte()?;
        match op {
            0x80 => drop(self.byte()?),
            0x95 => drop(self.take(8)?),
            b'.' => return self.pop().map(Some),
            b'(' => {
                if self.marks.len() >= self.limits.depth {
                    return Err(format!("nested more than {} deep", self.limits.depth));
                }
                self.marks.push(self.stack.len());
            }
            b'0' => match self.marks.last() {
                Some(&mark) if mark == self.stack.len() => drop(self.marks.pop()),
                _ => drop(self.pop()?),
            },
            b'1' => drop(self.since_mark()?),
            b'2' => {
                let id = self.top()?;
                self.push_id(id)?;
            }
            b'N' | 0x88 | 0x89 | b'I' | b'J' | b'K' | b'M' | b'L' | 0x8a | 0x8b | b'F' | b'G' => {
                self.scalar(op)?
            }
            b'S' | b'T' | b'U' | b'V' | b'X' | 0x8c | 0x8d | b'B' | b'C' | 0x8e | 0x96 => self.string(op)?,
            b']'
            | b'a'
            | b'e'
            | b'l'
            | b')'
            | b't'
            | 0x85..=0x87
            | b'}'
            | b'd'
            | b's'
            | b'u'
            | 0x8f
            | 0x90
            | 0x91 => {
                self.container(op)?;
            }
            b'c' | 0x93 | b'i' | b'o' | b'R' | b'b' | 0x81 | 0x92 | b'P' | b'Q' => self.object(op)?,
            b'g' | b'h' | b'j' | b'p' | b'q' | b'r' | 0x94 => self.remember(op)?,
            _ => return Err(format!("the instruction {op:#04x} is not known")),
        }
        Ok(None)
    }

    fn scalar(&mut self, op: u8) -> Read<()> {
        let value = match op {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'J' => Value::Int(i64::from(self.number(4)? as u32 as i32)),
            b'K' => Value::Int(self.number(1)? as i64),
            b'M' => Value::Int(self.number(2)? as i64),
            b'I' | b'L' => match self.line()?.trim_end_matches('L') {
                "00" if op == b'I' => Value::Bool(false),
                "01" if op == b'I' => Value::Bool(true),
                digits => Value::Int(digits.parse().map_err(|_| "not an integer of 64 bits")?),
            },
            0x8a | 0x8b => {
                let bytes = self.counted(if op == 0x8a { 1 } else { 4 })?;
                let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
                let mut all = [if negative { 0xff } else { 0 }; 8];
                match bytes.len() {
                    // Hashes and such: nobody reads them, but legacy files begin with one.
                    9.. => Value::Bytes(bytes.into()),
                    n => {
                        all[..n].copy_from_slice(bytes);
                        Value::Int(i64::from_le_bytes(all))
                    }
                }
            }
            b'F' => Value::Float(self.line()?.parse().map_err(|_| "not a number")?),
            _ => Value::Float(f64::from_bits(self.number(8)?.swap_bytes())),
        };
        self.push(value)
    }

    fn string(&mut self, op: u8) -> Read<()> {
        match op {
            b'S' | b'V' => {
                let line = self.line()?;
                let quoted = |quote| line.strip_prefix(quote).and_then(|line: &str| line.strip_suffix(quote));
                let line = if op == b'S' {
                    quoted('\'').or(quoted('"')).ok_or("a text without quotes")?
                } else {
                    line
                };
                self.text(line.as_bytes())
            }
            b'U' | 0x8c => self.counted(1).and_then(|bytes| self.text(bytes)),
            b'T' | b'X' => self.counted(4).and_then(|bytes| self.text(bytes)),
            0x8d => self.counted(8).and_then(|bytes| self.text(bytes)),
            _ => {
                let bytes = self.counted(match op {
                    b'C' => 1,
                    b'B' => 4,
                    _ => 8,
                })?;
                self.push(Value::Bytes(bytes.into()))
            }
        }
    }

    fn container(&mut self, op: u8) -> Read<()> {
        match op {
            b']' | 0x8f => self.push(Value::List(Vec::new())),
            b')' => self.push(Value::Tuple(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            b'l' | 0x91 => {
                let items = self.since_mark()?;
                self.push(Value::List(items))
            }
            b't' => {
                let items = self.since_mark()?;
                self.push(Value::Tuple(items))
            }
            0x85..=0x87 => {
                let mut items = vec![0; usize::from(op - 0x84)];
                for item in items.iter_mut().rev() {
                    *item = self.pop()?;
                }
                self.push(Value::Tuple(items))
            }
            b'd' => {
                let entries = pairs(self.since_mark()?)?;
                self.push(Value::Dict(entries))
            }
            b'a' => {
                let item = self.pop()?;
                self.extend(vec![item])
            }
            b'e' | 0x90 => {
                let items = self.since_mark()?;
                self.extend(items)
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(vec![(key, value)])
            }
            _ => {
                let entries = pairs(self.since_mark()?)?;
                self.set(entries)
            }
        }
    }

    fn extend(&mut self, new: Vec<Id>) -> Read<()> {
        let id = self.top()?;
        match &mut self.values[id] {
            Value::List(items) => items.extend(new),
            Value::Call(call) => call.items.extend(new),
            _ => return Err("values for something that is no list".into()),
        }
        Ok(())
    }

    fn set(&mut self, new: Vec<(Id, Id)>) -> Read<()> {
        let id = self.top()?;
        match &mut self.values[id] {
            Value::Dict(entries) => entries.extend(new),
            Value::Call(call) => call.entries.extend(new),
            _ => return Err("entries for something that is no dictionary".into()),
        }
        Ok(())
    }

    fn object(&mut self, op: u8) -> Read<()> {
        let named = |module: &str, name: &str| Value::Name(format!("{module}.{name}").into());
        match op {
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.push(named(module, name))
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Text(module), Value::Text(name)) = (&self.values[module], &self.values[name])
                else {
                    return Err("a name that is no text".into());
                };
                self.names = self.names.saturating_add(module.len() + name.len());
                if self.names > NAME_BYTES {
                    return Err("the names of classes are too long".into());
                }
                let value = named(module, name);
                self.push(value)
            }
            b'i' => {
                let (module, name) = (self.line()?, self.line()?);
                let items = self.since_mark()?;
                let (callee, arguments) = (self.add(named(module, name))?, self.add(Value::Tuple(items))?);
                self.call(callee, arguments)
            }
            b'o' => {
                let mut items = self.since_mark()?;
                if items.is_empty() {
                    return Err("a class is missing".into());
                }
                let callee = items.remove(0);
                let arguments = self.add(Value::Tuple(items))?;
                self.call(callee, arguments)
            }
            b'R' | 0x81 => {
                let (arguments, callee) = (self.pop()?, self.pop()?);
                self.call(callee, arguments)
            }
            0x92 => {
                let (_, arguments, callee) = (self.pop()?, self.pop()?, self.pop()?);
                self.call(callee, arguments)
            }
            b'b' => {
                let (state, id) = (self.pop()?, self.top()?);
                // The state of anything but a call says nothing.
                if let Value::Call(call) = &mut self.values[id] {
                    call.state = Some(state);
                }
                Ok(())
            }
            b'P' => {
                let line = self.line()?.to_owned();
                let id = self.add(Value::Text(line.into()))?;
                self.push(Value::Outside(id))
            }
            _ => {
                let id = self.pop()?;
                self.push(Value::Outside(id))
            }
        }
    }

    fn call(&mut self, callee: Id, arguments: Id) -> Read<()> {
        self.push(Value::Call(Box::new(Call { callee, arguments, ..Call::default() })))
    }

    fn remember(&mut self, op: u8) -> Read<()> {
        let key = match op {
            b'g' | b'p' => self.line()?.parse().map_err(|_| "a number is missing")?,
            b'h' | b'q' => self.number(1)?,
            b'j' | b'r' => self.number(4)?,
            _ => self.memo.len() as u64,
        };
        match op {
            b'g' | b'h' | b'j' => {
                let id = *self.memo.get(&key).ok_or_else(|| format!("value {key} was never stored"))?;
                self.push_id(id)
            }
            _ => {
                let id = self.top()?;
                // A value can be stored any number of times, for a byte each.
                if self.memo.len() >= self.limits.values / 4 {
                    return Err("too many values are stored".into());
                }
                self.memo.insert(key, id);
                Ok(())
            }
        }
    }
}

fn pairs(items: Vec<Id>) -> Read<Vec<(Id, Id)>> {
    match items.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.iter().map(|&[key, value]| (key, value)).collect()),
        _ => Err("a key without a value".into()),
    }
}
