//! Elements inside sentences: a sentence is translated whole, without its tags, and each element around the words
//! that its own content is translated to, if they occur there exactly once. Where they do not, or where elements are
//! nested, the texts between the tags are translated one by one.

use super::form::like_source;
use super::html::{Node, encode};
use super::plan::{Pieces, Plan};

/// Text with elements inside it.
#[derive(Debug)]
pub(super) struct Run {
    /// Source and sentences of the text without tags; `None` if it has tags that must stay at their places.
    whole: Option<Pieces>,
    items: Vec<Item>,
}

#[derive(Debug)]
enum Item {
    /// A tag or something that is kept.
    Kept(String),
    /// Text between tags; inside an element, its source.
    Text(Pieces, Option<String>),
}

/// Plans a run of nodes without block markup.
pub(super) fn plan(plan: &mut Plan, nodes: Vec<Node<'_>>, language: &str) -> Run {
    let one_line = |text: &str| text.replace(['\n', '\r'], " ");
    let blank = |text: &str| text.trim().is_empty();
    if !nodes.iter().any(|node| matches!(node, Node::Text(text) if !blank(text))) {
        let items = nodes.iter().map(|node| Item::Kept(source(node))).collect();
        return Run { whole: None, items };
    }
    let text: String = nodes
        .iter()
        .filter_map(|node| if let Node::Text(text) = node { Some(text.as_str()) } else { None })
        .collect();
    let tagged = nodes.iter().any(|node| !matches!(node, Node::Text(_)));
    let (start, end) = (text.len() - text.trim_start().len(), text.trim_end().len());
    if !tagged {
        let items = vec![
            Item::Kept(encode(&text[..start])),
            Item::Text(plan.pieces(&one_line(&text[start..end]), language), None),
            Item::Kept(encode(&text[end..])),
        ];
        return Run { whole: None, items };
    }
    let whole = is_flat(&nodes).then(|| plan.pieces(&one_line(&text), language));
    let mut inside = false;
    let mut items = Vec::new();
    for node in &nodes {
        match node {
            Node::Text(text) => {
                let own = inside.then(|| text.clone());
                items.push(Item::Text(plan.pieces(&one_line(text), language), own));
            }
            tag => {
                inside = matches!(tag, Node::Open(..));
                items.push(Item::Kept(source(tag)));
            }
        }
    }
    Run { whole, items }
}

/// Nodes of a run whose elements are looked for in its translation.
const MOST_NODES: usize = 200;

/// Returns true if every element holds one text and nothing else, and nothing is kept between them.
fn is_flat(nodes: &[Node<'_>]) -> bool {
    if nodes.len() > MOST_NODES {
        return false;
    }
    let mut open: Option<&str> = None;
    for (i, node) in nodes.iter().enumerate() {
        match (node, open) {
            (Node::Open(_, name), None) => {
                let holds_text =
                    matches!(nodes.get(i + 1), Some(Node::Text(text)) if !text.trim().is_empty());
                if !holds_text || !matches!(nodes.get(i + 2), Some(Node::Close(..))) {
                    return false;
                }
                open = Some(name);
            }
            (Node::Close(_, name), Some(own)) if name == own => open = None,
            (Node::Text(_), _) => {}
            _ => return false,
        }
    }
    open.is_none()
}

fn source(node: &Node<'_>) -> String {
    match node {
        Node::Text(text) => encode(text),
        Node::Open(raw, _) | Node::Close(raw, _) | Node::Inside(raw) | Node::Block(raw) => (*raw).to_owned(),
    }
}

impl Run {
    /// The run with translations in place of sentences.
    pub(super) fn join(&self, translations: &[&str]) -> String {
        if let Some(placed) =
            self.whole.as_ref().and_then(|whole| self.place(&whole.join(translations), translations))
        {
            return placed;
        }
        let item = |item: &Item| match item {
            Item::Kept(raw) => raw.clone(),
            Item::Text(pieces, _) => encode(&pieces.join(translations)),
        };
        self.items.iter().map(item).collect()
    }

    /// The whole translation with every element around its words; `None` if one cannot be placed.
    fn place(&self, whole: &str, translations: &[&str]) -> Option<String> {
        let mut places = Vec::new();
        for triple in self.items.windows(3) {
            let [Item::Kept(open), Item::Text(pieces, Some(source)), Item::Kept(close)] = triple else {
                continue;
            };
            let content = like_source(source, pieces.join(translations).trim());
            let (at, end) = only_place(whole, &content)?;
            places.push((at, end, open, close));
        }
        places.sort_unstable_by_key(|place| place.0);
        if places.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return None;
        }
        let (mut placed, mut last) = (String::new(), 0);
        for (at, end, open, close) in places {
            placed += &encode(&whole[last..at]);
            placed.extend([open.as_str(), &encode(&whole[at..end]), close]);
            last = end;
        }
        Some(placed + &encode(&whole[last..]))
    }
}

/// The only place of some words in a text, as whole words, their case aside.
fn only_place(text: &str, words: &str) -> Option<(usize, usize)> {
    if words.is_empty() {
        return None;
    }
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut places = text.char_indices().filter_map(|(at, _)| {
        let end = at + prefix_without_case(&text[at..], words)?;
        let whole = !is_word(text[..at].chars().next_back()) && !is_word(text[end..].chars().next());
        whole.then_some((at, end))
    });
    let first = places.next()?;
    places.next().is_none().then_some(first)
}

/// Bytes of `text` that equal `words`, their case aside, if it begins with them.
fn prefix_without_case(text: &str, words: &str) -> Option<usize> {
    let mut chars = text.char_indices();
    for wanted in words.chars() {
        let (_, found) = chars.next()?;
        if found != wanted && !found.to_lowercase().eq(wanted.to_lowercase()) {
            return None;
        }
    }
    Some(chars.next().map_or(text.len(), |(at, _)| at))
}
