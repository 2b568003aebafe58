//! Final punctuation and case of a translation as in its source, as LibreTranslate's clients expect.

const MARKS: [char; 6] = ['!', '?', '.', ',', ';', '。'];

/// Copies final punctuation and case of the source.
pub fn like_source(source: &str, translation: &str) -> String {
    let source = source.trim();
    let Some(last) = source.chars().next_back() else { return translation.to_owned() };
    if translation.is_empty() {
        return source.to_owned();
    }
    let mut text = translation.to_owned();
    let end = text.chars().next_back().filter(|end| MARKS.contains(end));
    if end != Some(last) {
        if end.is_some() {
            text.pop();
            text.truncate(text.trim_end().len());
        }
        if MARKS.contains(&last) {
            text.push(last);
        }
    }
    let has = |of: fn(char) -> bool| source.chars().any(of);
    match (has(char::is_lowercase), has(char::is_uppercase)) {
        (true, false) => return text.to_lowercase(),
        (false, true) => return text.to_uppercase(),
        _ => {}
    }
    let first = |change: fn(char) -> String| {
        let mut chars = text.chars();
        chars.next().map(change).unwrap_or_default() + chars.as_str()
    };
    match source.chars().next() {
        Some(c) if c.is_lowercase() => first(|c| c.to_lowercase().collect()),
        Some(c) if c.is_uppercase() => first(|c| c.to_uppercase().collect()),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_case_are_copied() {
        let cases = [
            ("Good morning!", "guten Morgen.", "Guten Morgen!"),
            ("Good morning", "Guten Morgen .", "Guten Morgen"),
            ("good morning.", "Guten Morgen", "guten morgen."),
            ("STOP!", "Halt!", "HALT!"),
            ("iPhone Case", "Hülle", "hülle"),
            ("3 Men", "drei Männer", "drei Männer"),
            ("Hello", "", "Hello"),
            (" ", "x", "x"),
        ];
        for (source, translation, want) in cases {
            assert_eq!(like_source(source, translation), want, "{source}");
        }
    }
}
