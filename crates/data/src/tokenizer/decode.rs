//! Pieces to text.

use super::bytes;

/// Rule by which pieces are joined.
pub(super) enum Decoder {
    /// Characters stand for bytes.
    ByteLevel,
    /// This mark ends words.
    WordEnd(String),
    /// This mark stands for a blank; pieces such as `<0xC3>` for bytes. A blank at the start goes.
    Metaspace(char),
    /// A blank between each two.
    Blanks,
}

impl Decoder {
    /// Returns whether `piece` begins a word, after `previous`.
    pub(super) fn begins_word(&self, previous: &str, piece: &str) -> bool {
        match self {
            Self::ByteLevel => piece.starts_with(bytes::char_of(b' ')),
            Self::WordEnd(mark) => previous.ends_with(&**mark),
            Self::Metaspace(mark) => piece.starts_with(*mark),
            Self::Blanks => true,
        }
    }

    /// The text of pieces with blanks between.
    pub(super) fn decode(&self, line: &str) -> String {
        let pieces = line.split(' ').filter(|piece| !piece.is_empty());
        match self {
            Self::ByteLevel => {
                let mut text = Vec::with_capacity(line.len());
                for c in pieces.flat_map(str::chars) {
                    match bytes::byte_of(c) {
                        Some(byte) => text.push(byte),
                        None => text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
                String::from_utf8_lossy(&text).trim_start_matches(' ').to_owned()
            }
            Self::WordEnd(mark) => {
                let text = pieces.map(|piece| piece.replace(&**mark, " ")).collect::<String>();
                text.trim_end_matches(' ').to_owned()
            }
            Self::Metaspace(mark) => {
                let mut text = Vec::with_capacity(line.len());
                for piece in pieces {
                    match byte_piece(piece) {
                        Some(byte) => text.push(byte),
                        None => text.extend_from_slice(piece.replace(*mark, " ").as_bytes()),
                    }
                }
                let text = String::from_utf8_lossy(&text);
                text.strip_prefix(' ').unwrap_or(&text).to_owned()
            }
            Self::Blanks => line.to_owned(),
        }
    }
}

/// The byte of `<0xC3>`.
fn byte_piece(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::Decoder;

    #[test]
    fn words_begin_where_the_decoder_puts_blanks() {
        let end = Decoder::WordEnd("</w>".into());
        for (decoder, previous, begins, goes_on) in [
            (Decoder::ByteLevel, "a", "Ġb", "b"),
            (Decoder::Metaspace('▁'), "▁a", "▁b", "b"),
            (Decoder::WordEnd("</w>".into()), "a</w>", "b", ""),
        ] {
            assert!(decoder.begins_word(previous, begins));
            assert!(goes_on.is_empty() || !decoder.begins_word(previous, goes_on));
        }
        assert!(!end.begins_word("a", "b</w>") && Decoder::Blanks.begins_word("a", "b"));
    }
}
