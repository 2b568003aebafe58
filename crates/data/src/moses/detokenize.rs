//! Tokens joined to text: `MosesDetokenizer.detokenize` of sacremoses.

use rustc_hash::FxHashMap;

use super::chars::{is_cjk, is_currency, is_letter, is_space};
use super::{Escapes, Lang};

/// Entities and their characters, in the order in which they are undone: `&amp;` last.
const ENTITIES: [(&str, &str); 11] = [
    ("&bar;", "|"),
    ("&#124;", "|"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&bra;", "["),
    ("&ket;", "]"),
    ("&quot;", "\""),
    ("&apos;", "'"),
    ("&#91;", "["),
    ("&#93;", "]"),
    ("&amp;", "&"),
];

/// Joins the tokens of one language.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    lang: Lang,
    escapes: Escapes,
}

/// Placement of a token in the line.
enum Place {
    /// To the token before it; a blank may follow.
    Left,
    /// To the token after it.
    Right,
    /// Between blanks.
    Free,
    /// To the token before it only if both are Chinese, Japanese or Korean.
    Cjk,
}

impl Detokenizer {
    /// A detokeniser with the rules of `lang`; with [`Escapes::Entities`] it undoes them.
    pub fn new(lang: Lang, escapes: Escapes) -> Self {
        Self { lang, escapes }
    }

    /// The text of a line of tokens with white space between them.
    pub fn detokenize(&self, line: &str) -> String {
        let tokens = line.split(is_space).filter(|token| !token.is_empty());
        let mut text = format!(" {} ", tokens.collect::<Vec<_>>().join(" ")).replace(" @-@ ", "-");
        if self.escapes == Escapes::Entities && text.contains('&') {
            for (entity, plain) in ENTITIES {
                text = text.replace(entity, plain);
            }
        }
        let tokens: Vec<&str> = text.split(is_space).filter(|token| !token.is_empty()).collect();
        let mut quotes = FxHashMap::default();
        let mut out = String::with_capacity(text.len());
        let mut blank = true;
        for (i, token) in tokens.iter().enumerate() {
            let before = i.checked_sub(1).map(|i| tokens[i]);
            let place = self.place(token, before, &mut quotes);
            let joined = match place {
                Place::Left => true,
                Place::Right | Place::Free => false,
                Place::Cjk => before.and_then(|token| token.chars().next_back()).is_some_and(is_cjk),
            };
            if blank && !joined {
                out.push(' ');
            }
            out.push_str(token);
            blank = !matches!(place, Place::Right);
        }
        out.trim_matches(is_space).to_owned()
    }

    fn place<'t>(
        &self,
        token: &'t str,
        before: Option<&str>,
        quotes: &mut FxHashMap<&'t str, usize>,
    ) -> Place {
        let all = |kind: fn(char) -> bool| token.chars().all(kind);
        let mut chars = token.chars();
        let (first, second) = (chars.next(), chars.next());
        if first.is_some_and(is_cjk) {
            Place::Cjk
        } else if all(|c| is_currency(c) || matches!(c, '(' | '[' | '{' | '¿' | '¡')) {
            Place::Right
        } else if all(|c| matches!(c, ',' | '.' | '?' | '!' | ':' | ';' | '\\' | '%' | '}' | ']' | ')')) {
            Place::Left
        } else if self.lang == Lang::En
            && before.is_some()
            && first == Some('\'')
            && second.is_some_and(is_letter)
        {
            // A contraction: 's, 're.
            Place::Left
        } else if all(|c| matches!(c, '\'' | '"' | '„' | '“' | '`')) {
            self.place_of_quote(token, before, quotes)
        } else {
            Place::Free
        }
    }

    /// Quotes open and close in turn, each kind for itself.
    fn place_of_quote<'t>(
        &self,
        token: &'t str,
        before: Option<&str>,
        quotes: &mut FxHashMap<&'t str, usize>,
    ) -> Place {
        let kind = if token.chars().all(|c| matches!(c, '„' | '“')) { "\"" } else { token };
        let count = quotes.entry(kind).or_default();
        let opens = count.is_multiple_of(2);
        if opens && self.lang == Lang::En && token == "'" && before.is_some_and(|word| word.ends_with('s')) {
            // A possessive: the Joneses' house.
            return Place::Left;
        }
        *count += 1;
        if opens { Place::Right } else { Place::Left }
    }
}
