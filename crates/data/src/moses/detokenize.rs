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
    /// After a blank, whatever stands before it, as some French punctuation.
    Apart,
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
            let place = self.place(&tokens, i, &mut quotes);
            let joined = match place {
                Place::Left => true,
                Place::Right | Place::Free | Place::Apart => false,
                Place::Cjk => before.and_then(|token| token.chars().next_back()).is_some_and(is_cjk),
            };
            if (blank || matches!(place, Place::Apart)) && !joined {
                out.push(' ');
            }
            out.push_str(token);
            blank = !matches!(place, Place::Right);
        }
        out.trim_matches(is_space).to_owned()
    }

    fn place<'t>(&self, tokens: &[&'t str], i: usize, quotes: &mut FxHashMap<&'t str, usize>) -> Place {
        let token = tokens[i];
        let all = |kind: fn(char) -> bool| token.chars().all(kind);
        let mut chars = token.chars();
        let (first, second) = (chars.next(), chars.next());
        if first.is_some_and(is_cjk) && self.lang != Lang::Ko {
            Place::Cjk
        } else if all(|c| is_currency(c) || matches!(c, '(' | '[' | '{' | '¿' | '¡')) {
            Place::Right
        } else if all(|c| matches!(c, ',' | '.' | '?' | '!' | ':' | ';' | '\\' | '%' | '}' | ']' | ')')) {
            match (self.lang, token) {
                (Lang::Fr, "?" | "!" | ":" | ";" | "\\" | "%") => Place::Apart,
                _ => Place::Left,
            }
        } else if self.joins_to_the_left(tokens, i, (first, second)) {
            Place::Left
        } else if self.joins_to_the_right(tokens, i) {
            Place::Right
        } else if all(|c| matches!(c, '\'' | '"' | '„' | '“' | '`')) {
            self.place_of_quote(tokens, i, quotes)
        } else {
            Place::Free
        }
    }

    /// English contractions (`'s`, `'re`), and Czech numbers in a line that ends in a number and a mark: sacremoses
    /// looks there for the decimal point.
    fn joins_to_the_left(
        &self,
        tokens: &[&str],
        i: usize,
        (first, second): (Option<char>, Option<char>),
    ) -> bool {
        match self.lang {
            Lang::En => i > 0 && first == Some('\'') && second.is_some_and(is_letter),
            Lang::Cs => {
                let [.., whole, point] = tokens else { return false };
                i > 1 && is_digits(whole) && matches!(*point, "." | ",") && is_digits(tokens[i])
            }
            _ => false,
        }
    }

    /// French, Italian and Irish contractions (`l'`) before a letter.
    fn joins_to_the_right(&self, tokens: &[&str], i: usize) -> bool {
        let contraction = || {
            let mut ends = tokens[i].chars().rev();
            ends.next() == Some('\'') && ends.next().is_some_and(is_letter)
        };
        match (self.lang, &tokens[i + 1..]) {
            (Lang::Fr | Lang::It | Lang::Ga, [next, ..]) => contraction() && next.starts_with(is_letter),
            _ => false,
        }
    }

    /// Quotes open and close in turn, each kind for itself. Czech ones say themselves which they are.
    fn place_of_quote<'t>(
        &self,
        tokens: &[&'t str],
        i: usize,
        quotes: &mut FxHashMap<&'t str, usize>,
    ) -> Place {
        let token = tokens[i];
        let kind = if token.chars().all(|c| matches!(c, '„' | '“')) { "\"" } else { token };
        let count = quotes.entry(kind).or_default();
        match (self.lang, token) {
            (Lang::Cs, "„") => *count = 0,
            (Lang::Cs, "“") => *count = 1,
            _ => (),
        }
        let opens = count.is_multiple_of(2);
        if opens && self.lang == Lang::En && token == "'" && i > 0 && tokens[i - 1].ends_with('s') {
            // A possessive: the Joneses' house.
            return Place::Left;
        }
        *count += 1;
        if opens { Place::Right } else { Place::Left }
    }
}

fn is_digits(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit())
}
