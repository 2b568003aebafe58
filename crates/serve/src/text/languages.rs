//! Languages by their codes.

/// A language: its code, its ISO 639-3 code and its English name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language {
    /// Code of two letters, as LibreTranslate uses it.
    pub code: &'static str,
    /// ISO 639-3.
    pub long: &'static str,
    /// English name.
    pub name: &'static str,
}

/// Codes that clients use for others, in both directions.
const ALIASES: [(&str, &str); 3] = [("pt-br", "pb"), ("zh-hans", "zh"), ("zh-hant", "zt")];

macro_rules! languages {
    ($($code:literal $long:literal $name:literal,)*) => {
        /// All languages with a name.
        const LANGUAGES: &[Language] = &[$(Language { code: $code, long: $long, name: $name },)*];
    };
}

languages! {
    "af" "afr" "Afrikaans", "ar" "ara" "Arabic", "az" "aze" "Azerbaijani", "be" "bel" "Belarusian", "bg" "bul" "Bulgarian",
    "bn" "ben" "Bengali", "ca" "cat" "Catalan", "cs" "ces" "Czech", "da" "dan" "Danish", "de" "deu" "German",
    "el" "ell" "Greek", "en" "eng" "English", "eo" "epo" "Esperanto", "es" "spa" "Spanish", "et" "est" "Estonian",
    "eu" "eus" "Basque", "fa" "pes" "Persian", "fi" "fin" "Finnish", "fr" "fra" "French", "ga" "gle" "Irish",
    "gl" "glg" "Galician", "gu" "guj" "Gujarati", "he" "heb" "Hebrew", "hi" "hin" "Hindi", "hr" "hrv" "Croatian",
    "hu" "hun" "Hungarian", "hy" "hye" "Armenian", "id" "ind" "Indonesian", "is" "isl" "Icelandic", "it" "ita" "Italian",
    "ja" "jpn" "Japanese", "ka" "kat" "Georgian", "kk" "kaz" "Kazakh", "km" "khm" "Khmer", "kn" "kan" "Kannada",
    "ko" "kor" "Korean", "ky" "kir" "Kyrgyz", "la" "lat" "Latin", "lt" "lit" "Lithuanian", "lv" "lav" "Latvian",
    "mk" "mkd" "Macedonian", "ml" "mal" "Malayalam", "mr" "mar" "Marathi", "ms" "msa" "Malay", "my" "mya" "Burmese",
    "nb" "nob" "Norwegian", "ne" "nep" "Nepali", "nl" "nld" "Dutch", "pa" "pan" "Punjabi", "pb" "" "Portuguese (Brazil)",
    "pl" "pol" "Polish", "pt" "por" "Portuguese", "ro" "ron" "Romanian", "ru" "rus" "Russian", "sk" "slk" "Slovak",
    "sl" "slv" "Slovenian", "sq" "sqi" "Albanian", "sr" "srp" "Serbian", "sv" "swe" "Swedish", "ta" "tam" "Tamil",
    "te" "tel" "Telugu", "th" "tha" "Thai", "tl" "tgl" "Tagalog", "tr" "tur" "Turkish", "uk" "ukr" "Ukrainian",
    "ur" "urd" "Urdu", "uz" "uzb" "Uzbek", "vi" "vie" "Vietnamese", "zh" "cmn" "Chinese", "zt" "" "Chinese (traditional)",
}

/// The language of a code.
pub fn by_code(code: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.code == code)
}

/// The language of an ISO 639-3 code.
pub fn by_long_code(long: &str) -> Option<&'static Language> {
    LANGUAGES.iter().find(|language| language.long == long)
}

/// A client's code as the server has it: small letters, aliases replaced.
pub fn canonical(code: &str) -> String {
    let lower = code.trim().to_lowercase();
    ALIASES.iter().find(|(alias, _)| *alias == lower).map_or(lower, |(_, code)| (*code).to_owned())
}

/// The code that clients get for one of the server's.
pub fn public(code: &str) -> String {
    match ALIASES.iter().find(|(_, own)| *own == code) {
        Some((alias, _)) => {
            let (language, region) = alias.split_once('-').unwrap_or((alias, ""));
            match region.len() {
                2 => format!("{language}-{}", region.to_uppercase()),
                _ => {
                    let mut letters = region.chars();
                    let first = letters.next().map(|c| c.to_ascii_uppercase());
                    format!("{language}-{}{}", first.unwrap_or_default(), letters.as_str())
                }
            }
        }
        None => code.to_owned(),
    }
}

/// The English name of a code; the code itself if it has none.
pub fn name(code: &str) -> &str {
    by_code(code).map_or(code, |language| language.name)
}

/// The first pair of languages that a name holds: `de-en` in `news-de-en`.
pub fn pair_in(name: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = name.split(|c: char| !c.is_alphanumeric()).collect();
    let known = |code: &str| code.chars().all(|c| c.is_ascii_lowercase()) && by_code(code).is_some();
    let pair = parts.windows(2).find(|pair| pair[0] != pair[1] && pair.iter().all(|code| known(code)))?;
    Some((pair[0].to_owned(), pair[1].to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_mapped_there_and_back() {
        for (sent, own, back) in [
            ("DE", "de", "de"),
            ("pt-BR", "pb", "pt-BR"),
            ("zh-Hans", "zh", "zh-Hans"),
            ("zh-hant", "zt", "zh-Hant"),
        ] {
            assert_eq!(canonical(sent), own);
            assert_eq!(public(own), back);
        }
        assert!(LANGUAGES.is_sorted_by_key(|language| language.code));
        assert_eq!((name("de"), name("xx")), ("German", "xx"));
    }

    #[test]
    fn pairs_are_found_in_names() {
        let pair = |name| pair_in(name).map(|(source, target)| format!("{source}>{target}"));
        assert_eq!(pair("news-de-en").as_deref(), Some("de>en"));
        assert_eq!(pair("mae7_en-de").as_deref(), Some("en>de"));
        assert_eq!(pair("mae7"), None);
        assert_eq!(pair("en-en"), None);
    }
}
