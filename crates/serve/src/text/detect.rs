//! Languages of texts, recognised by their letters.

use super::languages;

/// A recognised language.
#[derive(Clone, Debug, PartialEq)]
pub struct Detected {
    /// Code of the language.
    pub language: String,
    /// Confidence in percent.
    pub confidence: f64,
}

/// Recognises the language of texts among those of the server. A text in none of them is taken for the first, with
/// a confidence of 0.
pub fn detect<'a>(texts: impl IntoIterator<Item = &'a str>, served: &[String]) -> Option<Detected> {
    let mut sample = String::new();
    for text in texts {
        if sample.len() > SAMPLE {
            break;
        }
        sample.extend(text.chars().take(SAMPLE));
        sample.push('\n');
    }
    let found = |info: whatlang::Info| {
        let language = languages::by_long_code(info.lang().code())?;
        let confidence = (1000.0 * info.confidence()).round() / 10.0;
        served.iter().find(|code| *code == language.code).map(|code| (code.clone(), confidence))
    };
    let (language, confidence) = whatlang::detect(&sample)
        .and_then(found)
        .or_else(|| among(&sample, served).and_then(found).map(|(language, _)| (language, 0.0)))
        .or_else(|| served.first().map(|first| (first.clone(), 0.0)))?;
    Some(Detected { language, confidence })
}

/// The likeliest of the server's languages.
fn among(sample: &str, served: &[String]) -> Option<whatlang::Info> {
    let known = |code: &String| whatlang::Lang::from_code(languages::by_code(code)?.long);
    whatlang::Detector::with_allowlist(served.iter().filter_map(known).collect()).detect(sample)
}

/// Characters that are enough to recognise a language.
const SAMPLE: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_of_the_server_are_recognised() {
        let served = ["de".to_owned(), "en".to_owned()];
        let german =
            detect(["Mein Bruder ist gestern nach Hause gekommen und hat gelacht."], &served).unwrap();
        assert_eq!(german.language, "de");
        assert!(german.confidence > 50.0);
        let english = detect(["My brother came home yesterday and laughed about it."], &served).unwrap();
        assert_eq!(english.language, "en");
        let russian = detect(["Мой брат вчера пришел домой"], &served[1..]).unwrap();
        assert_eq!((russian.language.as_str(), russian.confidence), ("en", 0.0));
        assert_eq!(detect([""], &served).unwrap().confidence, 0.0);
        assert_eq!(detect(["Hallo"], &[]), None);
    }
}
