//! A graph: nodes that take and give named values.

use std::collections::BTreeMap;

use super::proto::Message;

/// Version of the file format, and of the set of operators: those of ONNX 1.12.
const IR_VERSION: i64 = 8;
const OPERATORS: i64 = 17;

/// Name of a value in a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value(String);

/// Attribute of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attribute<'a> {
    /// An integer.
    Int(&'a str, i64),
    /// Integers.
    Ints(&'a str, &'a [i64]),
    /// A number.
    Float(&'a str, f32),
}

/// Size of an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dim<'a> {
    /// A number.
    Fixed(usize),
    /// A name: any number, the same wherever the name stands.
    Free(&'a str),
}

/// Type of the elements of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Element {
    F32 = 1,
    I64 = 7,
}

/// A graph that grows.
#[derive(Debug)]
pub(crate) struct Graph {
    name: &'static str,
    nodes: Vec<Message>,
    constants: Vec<Message>,
    /// Constants by their content and inputs by their names, so that equal ones are one.
    known: BTreeMap<Vec<u8>, Value>,
    inputs: Vec<Message>,
    outputs: Vec<Message>,
}

impl Graph {
    /// An empty graph.
    pub(crate) fn new(name: &'static str) -> Self {
        let (nodes, constants, known) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { name, nodes, constants, known, inputs: Vec::new(), outputs: Vec::new() }
    }

    /// Adds an input, or finds the one of this name.
    pub(crate) fn input(&mut self, name: &str, element: Element, dims: &[Dim<'_>]) -> Value {
        let value = Value(name.to_owned());
        if self.known.insert(name.as_bytes().to_vec(), value.clone()).is_none() {
            self.inputs.push(described(name, element, dims));
        }
        value
    }

    /// Makes a value an output.
    pub(crate) fn output(&mut self, name: &str, value: &Value, element: Element, dims: &[Dim<'_>]) {
        let node = Message::default().text(1, &value.0).text(2, name).text(4, "Identity");
        self.nodes.push(node);
        self.outputs.push(described(name, element, dims));
    }

    /// Adds a node with one result.
    pub(crate) fn op(&mut self, kind: &str, inputs: &[&Value], attributes: &[Attribute<'_>]) -> Value {
        let result = Value(format!("{}_{}", kind.to_lowercase(), self.nodes.len()));
        let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, &input.0));
        let node = node.text(2, &result.0).text(3, &result.0).text(4, kind);
        let attributes: Vec<Message> = attributes.iter().map(Attribute::message).collect();
        self.nodes.push(node.messages(5, &attributes));
        result
    }

    /// A list of integers.
    pub(crate) fn ints(&mut self, values: &[i64]) -> Value {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(Element::I64, &[values.len() as i64], &bytes)
    }

    /// A number.
    pub(crate) fn number(&mut self, value: f32) -> Value {
        self.constant(Element::F32, &[], &value.to_le_bytes())
    }

    fn constant(&mut self, element: Element, dims: &[i64], bytes: &[u8]) -> Value {
        let content = Message::default().ints(1, dims).int(2, element as i64).bytes(9, bytes);
        let key = content.clone().into_bytes();
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let value = Value(format!("constant_{}", self.constants.len()));
        self.constants.push(content.text(8, &value.0));
        self.known.insert(key, value.clone());
        value
    }

    /// Numbers of another file, from byte `offset` on; once for each name.
    pub(crate) fn stored(&mut self, name: &str, dims: &[usize], (file, offset): (&str, u64)) -> Value {
        let value = Value(name.to_owned());
        if self.known.contains_key(name.as_bytes()) {
            return value;
        }
        let length = 4 * dims.iter().product::<usize>();
        let dims: Vec<i64> = dims.iter().map(|&size| size as i64).collect();
        let entry = |key: &str, text: &str| Message::default().text(1, key).text(2, text);
        let place = [
            entry("location", file),
            entry("offset", &offset.to_string()),
            entry("length", &length.to_string()),
        ];
        let tensor = Message::default().ints(1, &dims).int(2, Element::F32 as i64).text(8, name);
        self.constants.push(tensor.messages(13, &place).int(14, 1));
        self.known.insert(name.as_bytes().to_vec(), value.clone());
        value
    }

    /// The bytes of a file.
    pub(crate) fn finish(self) -> Vec<u8> {
        let graph = Message::default()
            .messages(1, &self.nodes)
            .text(2, self.name)
            .messages(5, &self.constants)
            .messages(11, &self.inputs)
            .messages(12, &self.outputs);
        let operators = Message::default().text(1, "").int(2, OPERATORS);
        Message::default()
            .int(1, IR_VERSION)
            .text(2, "mae")
            .text(3, env!("CARGO_PKG_VERSION"))
            .message(7, &graph)
            .message(8, &operators)
            .into_bytes()
    }
}

impl Attribute<'_> {
    fn message(&self) -> Message {
        // Types of attributes: 1 is a float, 2 an integer, 7 are integers.
        match *self {
            Self::Float(name, value) => Message::default().text(1, name).float(2, value).int(20, 1),
            Self::Int(name, value) => Message::default().text(1, name).int(3, value).int(20, 2),
            Self::Ints(name, values) => Message::default().text(1, name).ints(8, values).int(20, 7),
        }
    }
}

/// A named value with its type and shape.
fn described(name: &str, element: Element, dims: &[Dim<'_>]) -> Message {
    let dims: Vec<Message> = dims
        .iter()
        .map(|dim| match *dim {
            Dim::Fixed(size) => Message::default().int(1, size as i64),
            Dim::Free(name) => Message::default().text(2, name),
        })
        .collect();
    let shape = Message::default().messages(1, &dims);
    let tensor = Message::default().int(1, element as i64).message(2, &shape);
    Message::default().text(1, name).message(2, &Message::default().message(1, &tensor))
}
