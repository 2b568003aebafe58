//! Helpers that the tokenisers share.

/// White space of Python's `str.split`: Unicode's property and four ASCII separators.
pub(crate) fn is_python_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\x1c'..='\x1f')
}

/// The words of a line, as Python's `str.split` finds them.
pub(crate) fn python_words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_python_space).filter(|word| !word.is_empty())
}

/// The ASCII symbols that always stand alone: all but `'`, `,`, `-` and `.`.
pub(crate) fn stands_alone(c: char) -> bool {
    matches!(c, ' '..='&' | '('..='+' | '/' | ':'..='@' | '['..='`' | '{'..='~')
}

/// The line between two blanks, with blanks around every character that `hit` accepts.
pub(crate) fn space_out(line: &str, hit: impl Fn(char) -> bool) -> String {
    let mut spaced = String::with_capacity(line.len() * 3 / 2 + 2);
    spaced.push(' ');
    push_padded(&mut spaced, line, hit);
    spaced.push(' ');
    spaced
}

/// The line with blanks around every character that `hit` accepts.
pub(crate) fn pad(line: &str, hit: impl Fn(char) -> bool) -> String {
    let mut padded = String::with_capacity(line.len() * 3 / 2);
    push_padded(&mut padded, line, hit);
    padded
}

fn push_padded(out: &mut String, line: &str, hit: impl Fn(char) -> bool) {
    for c in line.chars() {
        if hit(c) {
            out.extend([' ', c, ' ']);
        } else {
            out.push(c);
        }
    }
}

/// The line between two blanks, with blanks around the symbols of ASCII that always stand alone.
pub(crate) fn space_out_symbols(line: &str) -> String {
    space_out(line, stands_alone)
}

/// Blanks around the periods and commas outside numbers, and around dashes after digits.
pub(crate) fn space_out_marks(line: &str) -> String {
    let is_mark = |c: char| c == '.' || c == ',';
    let is_digit = |c: char| c.is_ascii_digit();
    // Periods and commas stand alone unless a digit comes before them …
    let spaced = rewrite_pairs(line, |a, b| !is_digit(a) && is_mark(b), |a, b| [a, ' ', b, ' ']);
    // … and unless a digit follows them.
    let spaced = rewrite_pairs(&spaced, |a, b| is_mark(a) && !is_digit(b), |a, b| [' ', a, ' ', b]);
    // A dash stands alone after a digit.
    rewrite_pairs(&spaced, |a, b| is_digit(a) && b == '-', |a, b| [a, ' ', b, ' '])
}

/// Replaces, from left to right and without overlap, every pair of neighbours that `hit` accepts.
pub(crate) fn rewrite_pairs(
    text: &str,
    hit: impl Fn(char, char) -> bool,
    replacement: impl Fn(char, char) -> [char; 4],
) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut chars = text.chars().peekable();
    while let Some(first) = chars.next() {
        match chars.next_if(|&second| hit(first, second)) {
            Some(second) => out.extend(replacement(first, second)),
            None => out.push(first),
        }
    }
    out
}

/// The four entities of mteval and tercom, undone one after the other: `&amp;lt;` ends up as `<`.
pub(crate) fn undo_entities(line: &str) -> String {
    line.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
}
