//! Extraction of text from the files of IWSLT and WMT, like fairseq's scripts.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::lines::{BadUtf8, Issues, LineReader};

/// Markup around the text in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Markup {
    /// Nothing: each line is text.
    #[default]
    None,
    /// IWSLT's `train.tags`: lines with addresses, numbers and keywords of talks are dropped, titles and
    /// descriptions kept.
    Tags,
    /// IWSLT17's `train.tags`: like [`Markup::Tags`], and lines about speakers, translators and documents are dropped.
    Talks,
    /// `<seg id="…">` lines of XML and SGM sets; all other lines are dropped.
    Segments,
}

impl Markup {
    /// The text of a line, if it has any.
    fn strip(self, line: &str) -> Option<String> {
        match self {
            Self::None => Some(line.to_owned()),
            Self::Tags => {
                if ["<url>", "<talkid>", "<keywords>"].iter().any(|tag| line.contains(tag)) {
                    return None;
                }
                let tags = ["<title>", "</title>", "<description>", "</description>"];
                Some(tags.iter().fold(line.to_owned(), |line, tag| line.replace(tag, "")))
            }
            Self::Talks => {
                let about = ["<speaker>", "<reviewer", "<translator", "<doc", "</doc>"];
                let text =
                    (!about.iter().any(|tag| line.contains(tag))).then(|| Self::Tags.strip(line))??;
                Some(text.trim().to_owned())
            }
            Self::Segments => line.contains("<seg id").then(|| segment(line)),
        }
    }
}

/// The text of `<seg id="12"> text </seg>`.
fn segment(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("<seg id=\"") {
        let digits = rest[at + 9..].trim_start_matches(|c: char| c.is_ascii_digit());
        text.push_str(&rest[..at]);
        rest = match digits.strip_prefix("\">") {
            Some(after) => after.trim_start(),
            None => {
                text.push_str(&rest[at..at + 9]);
                &rest[at + 9..]
            }
        };
    }
    text.push_str(rest);
    let mut parts = text.split("</seg>");
    let mut joined = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        joined.truncate(joined.trim_end().len());
        joined.push_str(part.trim_start());
    }
    joined
}

/// A parallel text on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The source side.
    pub src: PathBuf,
    /// The target side.
    pub tgt: PathBuf,
    /// Markup of both sides.
    pub markup: Markup,
}

impl Text {
    /// Two files of plain lines.
    pub fn plain(src: impl Into<PathBuf>, tgt: impl Into<PathBuf>) -> Self {
        Self { src: src.into(), tgt: tgt.into(), markup: Markup::None }
    }
}

/// Reads the pairs of a text without markup.
pub(super) struct Pairs {
    sides: [LineReader; 2],
    markup: Markup,
    counts: [u64; 2],
}

impl Pairs {
    pub(super) fn open(text: &Text, policy: BadUtf8) -> Result<Self> {
        let sides = [LineReader::open(&text.src, policy)?, LineReader::open(&text.tgt, policy)?];
        Ok(Self { sides, markup: text.markup, counts: [0; 2] })
    }

    fn next_of(&mut self, side: usize) -> Result<Option<String>> {
        while let Some(line) = self.sides[side].next_line()? {
            if let Some(text) = self.markup.strip(line) {
                self.counts[side] += 1;
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// Up to `n` pairs, fewer if they are long; none only at the end.
    pub(super) fn next_chunk(&mut self, n: usize) -> Result<Vec<(String, String)>> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < n && bytes < 1 << 25 {
            match (self.next_of(0)?, self.next_of(1)?) {
                (Some(src), Some(tgt)) => {
                    bytes += src.len() + tgt.len();
                    chunk.push((src, tgt));
                }
                (None, None) => break,
                _ => return Err(self.mismatch()?),
            }
        }
        Ok(chunk)
    }

    fn mismatch(&mut self) -> Result<Error> {
        for side in 0..2 {
            while self.next_of(side)?.is_some() {}
        }
        let [src, tgt] = [0, 1].map(|side| self.sides[side].path().to_owned());
        let [src_lines, tgt_lines] = self.counts;
        Ok(Error::LineCountMismatch { src, src_lines, tgt, tgt_lines })
    }

    /// Oddities of both files.
    pub(super) fn issues(&self) -> impl Iterator<Item = (PathBuf, Issues)> {
        self.sides.iter().map(|side| (side.path().to_owned(), side.issues().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::Markup;

    #[test]
    fn markup_goes_as_the_scripts_have_it() {
        let tags = |line| Markup::Tags.strip(line);
        assert_eq!(tags("<url>http://x</url>"), None);
        assert_eq!(tags("<title>A: B</title>").as_deref(), Some("A: B"));
        assert_eq!(tags(" a <b> ").as_deref(), Some(" a <b> "));
        let talks = |line| Markup::Talks.strip(line);
        assert_eq!(talks("<translator href=\"x\">Y</translator>"), None);
        assert_eq!((talks("<doc docid=\"1\">"), talks("<talkid>1</talkid>")), (None, None));
        assert_eq!(talks(" <title>A</title> ").as_deref(), Some("A"));
        let segments = |line| Markup::Segments.strip(line);
        assert_eq!(segments("<title>x</title>"), None);
        assert_eq!(segments("<seg id=\"12\">  It’s &amp; so. </seg> \t").as_deref(), Some("It’s &amp; so."));
        assert_eq!(segments("<seg id=\"\">a</seg>").as_deref(), Some("a"));
        assert_eq!(segments("<seg id=\"x\">a").as_deref(), Some("<seg id=\"x\">a"));
    }
}
