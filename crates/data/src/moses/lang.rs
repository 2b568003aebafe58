//! Languages that have rules.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::options::OptionFault;

macro_rules! languages {
    ($($variant:ident = $code:literal, $name:literal;)*) => {
        /// A language with rules of its own: those for which sacremoses has a list of abbreviations, Japanese and
        /// Korean.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Lang {
            $(#[doc = concat!($name, ".")] $variant,)*
        }

        impl Lang {
            /// All languages, sorted by their codes.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Code of the language, such as `de`.
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)*
                }
            }

            /// English name of the language.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

languages! {
    As = "as", "Assamese";
    Bn = "bn", "Bengali";
    Ca = "ca", "Catalan";
    Cs = "cs", "Czech";
    De = "de", "German";
    El = "el", "Greek";
    En = "en", "English";
    Es = "es", "Spanish";
    Et = "et", "Estonian";
    Fi = "fi", "Finnish";
    Fr = "fr", "French";
    Ga = "ga", "Irish";
    Gu = "gu", "Gujarati";
    Hi = "hi", "Hindi";
    Hu = "hu", "Hungarian";
    Is = "is", "Icelandic";
    It = "it", "Italian";
    Ja = "ja", "Japanese";
    Kn = "kn", "Kannada";
    Ko = "ko", "Korean";
    Lt = "lt", "Lithuanian";
    Lv = "lv", "Latvian";
    Ml = "ml", "Malayalam";
    Mni = "mni", "Manipuri";
    Mr = "mr", "Marathi";
    Nl = "nl", "Dutch";
    Or = "or", "Oriya";
    Pa = "pa", "Punjabi";
    Pl = "pl", "Polish";
    Pt = "pt", "Portuguese";
    Ro = "ro", "Romanian";
    Ru = "ru", "Russian";
    Sk = "sk", "Slovak";
    Sl = "sl", "Slovenian";
    Sv = "sv", "Swedish";
    Ta = "ta", "Tamil";
    Tdt = "tdt", "Tetum";
    Te = "te", "Telugu";
    Yue = "yue", "Cantonese";
    Zh = "zh", "Chinese";
}

impl Lang {
    /// The codes of all languages, separated by commas.
    pub fn codes() -> String {
        Self::ALL.iter().map(|lang| lang.code()).collect::<Vec<_>>().join(", ")
    }
}

impl FromStr for Lang {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.iter().find(|lang| lang.code() == text);
        known.copied().ok_or_else(|| OptionFault::NoRules(text.to_owned()).into())
    }
}

impl fmt::Display for Lang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
