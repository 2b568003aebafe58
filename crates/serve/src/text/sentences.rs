//! Texts cut into sentences: the rules of Unicode (UAX 29) for ends of sentences, with abbreviations.
//!
//! A sentence ends at a line end, and after `. ! ? …` with closing quotes or brackets if a blank follows and the next
//! word does not begin with a small letter; after `。！？` also without a blank. Blanks and line ends around sentences
//! are parts of their own: all parts together are the text, to the byte.

use super::abbreviations::keeps_period;

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A sentence, without blanks around it.
    Sentence(&'a str),
    /// Blanks, line ends, and marks without a letter or a number.
    Between(&'a str),
}

/// Characters after which a sentence is divided at a blank although it has no end: no model reads as much at once.
const LONGEST: usize = 1500;

/// Cuts a text of a language (`en`, `de`, …) into parts.
pub fn split<'a>(text: &'a str, language: &str) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    for line in text.split_inclusive(['\n', '\r', '\u{2028}', '\u{2029}']) {
        let content = line.trim_end_matches(['\n', '\r', '\u{2028}', '\u{2029}']);
        let mut rest = content;
        while !rest.is_empty() {
            let (sentence, after) = rest.split_at(end_of_sentence(rest, language));
            push(sentence, &mut parts);
            rest = after;
        }
        if content.len() < line.len() {
            parts.push(Part::Between(&line[content.len()..]));
        }
    }
    parts
}

/// Adds a sentence with the blanks around it.
fn push<'a>(text: &'a str, parts: &mut Vec<Part<'a>>) {
    let mut rest = text.trim_start();
    let blanks = text.len() - rest.len();
    if blanks > 0 {
        parts.push(Part::Between(&text[..blanks]));
    }
    while !rest.is_empty() {
        let (sentence, after) = rest.split_at(divide(rest));
        let core = sentence.trim_end();
        let has_words = core.chars().any(char::is_alphanumeric);
        parts.push(if has_words { Part::Sentence(core) } else { Part::Between(core) });
        if core.len() < sentence.len() {
            parts.push(Part::Between(&sentence[core.len()..]));
        }
        rest = after;
    }
}

/// Bytes of the beginning of a sentence that is read at once: all of it unless it is too long.
fn divide(sentence: &str) -> usize {
    let Some((limit, _)) = sentence.char_indices().nth(LONGEST) else { return sentence.len() };
    let blank = sentence[..limit].rfind(char::is_whitespace).map(|at| {
        let blank = sentence[at..].chars().next().map_or(1, char::len_utf8);
        at + blank
    });
    blank.unwrap_or(limit)
}

/// Bytes of the first sentence of a line, with the blanks after it.
fn end_of_sentence(line: &str, language: &str) -> usize {
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !is_terminal(c) {
            continue;
        }
        let mut end = at + c.len_utf8();
        let mut last = c;
        while let Some(&(next, c)) = chars.peek() {
            if !is_terminal(c) && !is_closing(c) {
                break;
            }
            if is_terminal(c) {
                last = c;
            }
            end = next + c.len_utf8();
            chars.next();
        }
        let rest = &line[end..];
        let after = rest.trim_start();
        let blanks = rest.len() - after.len();
        if after.is_empty() {
            return line.len();
        }
        let wide = matches!(last, '。' | '！' | '？');
        if wide || blanks > 0 && begins_sentence(after) && !(c == '.' && is_abbreviated(line, at, language)) {
            return end + blanks;
        }
    }
    line.len()
}

/// Returns true if the period at `at` belongs to the word before it.
fn is_abbreviated(line: &str, at: usize, language: &str) -> bool {
    let word = line[..at].rsplit(char::is_whitespace).next().unwrap_or("");
    !word.is_empty() && !line[at + 1..].starts_with('.') && keeps_period(word, language)
}

fn begins_sentence(text: &str) -> bool {
    let word = text.trim_start_matches(|c: char| !c.is_alphanumeric() && !c.is_whitespace());
    !word.chars().next().is_some_and(char::is_lowercase)
}

fn is_terminal(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…' | '‼' | '⁇' | '⁈' | '⁉' | '。' | '！' | '？' | '؟' | '۔' | '।')
}

fn is_closing(c: char) -> bool {
    matches!(c, '"' | '\'' | '”' | '“' | '’' | '‘' | '»' | '«' | ')' | ']' | '}' | '」' | '』' | '）')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
        let parts = split(text, language);
        let whole: String = parts
            .iter()
            .map(|part| match part {
                Part::Sentence(text) | Part::Between(text) => *text,
            })
            .collect();
        assert_eq!(whole, text, "nothing is lost");
        let sentence = |part: Part<'a>| match part {
            Part::Sentence(text) => Some(text),
            Part::Between(_) => None,
        };
        parts.into_iter().filter_map(sentence).collect()
    }

    #[test]
    fn sentences_end_at_marks_before_capitals() {
        let text = "  It rains. “Does it?” he said. Yes!  No… maybe (not.) Really?!\n\nNext line\r\nLast.  ";
        let want = [
            "It rains.",
            "“Does it?” he said.",
            "Yes!",
            "No… maybe (not.)",
            "Really?!",
            "Next line",
            "Last.",
        ];
        assert_eq!(sentences(text, "en"), want);
        assert_eq!(sentences("早上好。你好！再见", "zh"), ["早上好。", "你好！", "再见"]);
    }

    #[test]
    fn abbreviations_initials_and_numbers_keep_their_period() {
        let whole = [
            ("en", "Mr. Smith met Dr. J. F. Jones at 3.5 p.m. Monday in the U.S. Senate"),
            ("en", "See e.g. Chapter 3 vs. Fig. 4 of mae.rs and example.com"),
            ("de", "Am 3. Oktober kam z. B. Herr Dr. Meier, d. h. Prof. Meier, nach St. Gallen"),
            ("de", "Das sind ca. 5 Mio. Euro bzw. Franken vgl. Abb. 7"),
        ];
        for (language, text) in whole {
            assert_eq!(sentences(text, language), [text]);
        }
        assert_eq!(sentences("Es war 1990. Dann kam er.", "de"), ["Es war 1990.", "Dann kam er."]);
        assert_eq!(sentences("Wait... What?", "en"), ["Wait...", "What?"]);
    }

    #[test]
    fn marks_alone_are_no_sentences() {
        assert_eq!(sentences("--- 🙂 ...\n", "en"), [] as [&str; 0]);
        assert_eq!(sentences("", "en"), [] as [&str; 0]);
    }

    #[test]
    fn endless_sentences_are_divided_at_blanks() {
        let long = "word ".repeat(1000);
        let parts = sentences(&long, "en");
        assert_eq!(parts.len(), 4);
        assert!(parts.iter().all(|part| part.len() <= LONGEST && part.ends_with("word")));
        let solid = "x".repeat(4000);
        assert_eq!(
            sentences(&solid, "en").iter().map(|part| part.len()).collect::<Vec<_>>(),
            [1500, 1500, 1000]
        );
    }
}
