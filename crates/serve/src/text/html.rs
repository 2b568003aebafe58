//! HTML cut into markup and text. Not a parser of documents: tags are kept to the byte, and only what lies between
//! them is translated.

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// Text, with entities decoded.
    Text(String),
    /// The start of an element inside a sentence (`<b>`, `<a href=…>`), and its name.
    Open(&'a str, String),
    /// The end of such an element, and its name.
    Close(&'a str, String),
    /// Anything else inside a sentence that is kept as it is (`<br>`, `<img>`, `<code>…</code>`).
    Inside(&'a str),
    /// Markup that ends a sentence (`<p>`, comments, scripts with their content).
    Block(&'a str),
}

/// Elements inside sentences.
const INLINE: &[&str] = &[
    "a", "abbr", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "mark",
    "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u",
];

/// Elements inside sentences whose content is not text to translate, or that have none.
const KEPT_INSIDE: &[&str] = &["code", "kbd", "samp", "var"];
const EMPTY_INSIDE: &[&str] = &["br", "img", "wbr"];

/// Elements whose content is not text.
const KEPT: &[&str] = &["script", "style", "textarea", "template", "svg", "math"];

/// Cuts a document into nodes; all of them together are the document.
pub fn nodes(text: &str) -> Vec<Node<'_>> {
    let (mut nodes, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let plain = rest.find('<').unwrap_or(rest.len());
        if plain > 0 {
            nodes.push(Node::Text(decode(&rest[..plain])));
            rest = &rest[plain..];
            continue;
        }
        let Some(length) = markup(rest) else {
            // A `<` that begins nothing.
            let next = rest[1..].find('<').map_or(rest.len(), |at| at + 1);
            nodes.push(Node::Text(decode(&rest[..next])));
            rest = &rest[next..];
            continue;
        };
        let (tag, after) = rest.split_at(length);
        let name = name(tag);
        let closes = tag.starts_with("</");
        let kept = |list: &[&str]| list.contains(&&*name);
        let untranslated = !closes && (tag.contains("translate=\"no\"") || tag.contains("notranslate"));
        if !closes && (kept(KEPT) || kept(KEPT_INSIDE) || untranslated) && !tag.ends_with("/>") {
            let whole = length + end_of_element(after, &name);
            let inside = kept(KEPT_INSIDE) || kept(INLINE);
            nodes.push(if inside { Node::Inside(&rest[..whole]) } else { Node::Block(&rest[..whole]) });
            rest = &rest[whole..];
            continue;
        }
        nodes.push(match closes {
            _ if kept(EMPTY_INSIDE) => Node::Inside(tag),
            false if kept(INLINE) => Node::Open(tag, name),
            true if kept(INLINE) => Node::Close(tag, name),
            _ => Node::Block(tag),
        });
        rest = after;
    }
    nodes
}

/// Characters of the longest tag: what goes on beyond it is text.
const LONGEST_TAG: usize = 2048;

/// Bytes of the markup at the beginning of a text; `None` if it is a plain `<`.
fn markup(text: &str) -> Option<usize> {
    if text.starts_with("<!--") {
        return Some(text.find("-->").map_or(text.len(), |at| at + 3));
    }
    let second = text[1..].chars().next()?;
    if !(second.is_ascii_alphabetic() || matches!(second, '/' | '!' | '?')) {
        return None;
    }
    let mut quote = None;
    for (at, c) in text.char_indices().take(LONGEST_TAG) {
        match (quote, c) {
            (None, '>') => return Some(at + 1),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    None
}

fn name(tag: &str) -> String {
    let name = tag.trim_start_matches(['<', '/']);
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
    name[..end].to_ascii_lowercase()
}

/// Bytes up to the end of an element whose start has been read.
fn end_of_element(text: &str, name: &str) -> usize {
    let closes = |at: &usize| {
        let found = text.as_bytes().get(at + 2..at + 2 + name.len());
        found.is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()))
    };
    match text.match_indices("</").map(|(at, _)| at).find(closes) {
        Some(at) => at + text[at..].find('>').map_or(text.len() - at, |end| end + 1),
        None => text.len(),
    }
}

/// Entities by name.
const ENTITIES: [(&str, &str); 15] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", "\u{a0}"),
    ("ndash", "–"),
    ("mdash", "—"),
    ("hellip", "…"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("auml", "ä"),
    ("szlig", "ß"),
];

/// Longest entity that is looked for.
const LONGEST_ENTITY: usize = 12;

/// Replaces entities by their characters; unknown ones stay.
pub fn decode(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(LONGEST_ENTITY).position(|b| b == b';');
        match end.and_then(|end| Some((end, character(&rest[1..end])?))) {
            Some((end, character)) => {
                decoded.push_str(&character);
                rest = &rest[end + 1..];
            }
            None => {
                decoded.push('&');
                rest = &rest[1..];
            }
        }
    }
    decoded + rest
}

fn character(entity: &str) -> Option<String> {
    let number = match entity.strip_prefix('#') {
        None => return ENTITIES.iter().find(|(name, _)| *name == entity).map(|(_, text)| (*text).to_owned()),
        Some(number) => match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        },
    };
    number.ok().and_then(char::from_u32).map(String::from)
}

/// Writes a text as HTML.
pub fn encode(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_text_are_told_apart() {
        let page = "<p class='a>b'>Fish &amp; <b>chips</b><br> for 3 < 4</p><!-- <b> --><SCRIPT>a<b</script>";
        let text = |text: &str| Node::Text(text.into());
        let want = [
            Node::Block("<p class='a>b'>"),
            text("Fish & "),
            Node::Open("<b>", "b".into()),
            text("chips"),
            Node::Close("</b>", "b".into()),
            Node::Inside("<br>"),
            text(" for 3 "),
            text("< 4"),
            Node::Block("</p>"),
            Node::Block("<!-- <b> -->"),
            Node::Block("<SCRIPT>a<b</script>"),
        ];
        assert_eq!(nodes(page), want);
        assert_eq!(nodes("run <code>x = 1</code> <span translate=\"no\">mae</span>")[1..].len(), 3);
    }

    #[test]
    fn broken_markup_is_kept() {
        for page in ["<", "a <b", "<p", "<!-- open", "<script>x", "&#xD800; &nope; &", "</", "<b>", "<é>"] {
            let whole: String = nodes(page)
                .iter()
                .map(|node| match node {
                    Node::Text(text) => text.as_str(),
                    Node::Open(raw, _) | Node::Close(raw, _) | Node::Inside(raw) | Node::Block(raw) => raw,
                })
                .collect();
            assert_eq!(whole, page);
        }
    }

    #[test]
    fn entities_are_decoded() {
        assert_eq!(decode("&lt;&#228;&#xE4;&nbsp;&quot;&x;"), "<ää\u{a0}\"&x;");
        assert_eq!(encode("<a> & b"), "&lt;a&gt; &amp; b");
    }
}
