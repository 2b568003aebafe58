//! Pieces to text.

use super::{BLANK, Kind, Model};

/// Treatment of pieces that the model does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// As they are, as in the package.
    AsIs,
    /// Like pieces that the model has: they may be those of the other side's model.
    Spelled,
}

pub(super) fn decode<'a>(model: &Model, pieces: impl Iterator<Item = &'a str>, unknown: Unknown) -> String {
    let mut text = String::new();
    let mut bytes = Vec::new();
    let mut blank_seen = false;
    let mut at_start = true;
    for piece in pieces {
        let id = model.id(piece);
        if model.kind(id) == Kind::Byte {
            bytes.extend(u8::from_str_radix(piece.get(3..5).unwrap_or_default(), 16));
            continue;
        }
        push_bytes(&mut text, &mut bytes);
        if blank_seen || !text.is_empty() {
            at_start = false;
        }
        blank_seen = false;
        let is_unknown_piece = &*model.entries[id as usize].text == piece;
        match model.kind(id) {
            Kind::Control => {}
            Kind::Unknown if is_unknown_piece => text.push_str(&model.unknown_surface),
            Kind::Unknown if unknown == Unknown::AsIs => text.push_str(piece),
            _ => {
                let mut piece = piece;
                if at_start
                    && model.normalizer.strips_first_blank()
                    && let Some(rest) = piece.strip_prefix(BLANK)
                {
                    piece = rest;
                    blank_seen = !model.normalizer.strips_all_blanks();
                }
                text.extend(piece.chars().map(|c| if c == BLANK { ' ' } else { c }));
            }
        }
    }
    push_bytes(&mut text, &mut bytes);
    match &model.denormalizer {
        Some(denormalizer) => denormalizer.normalize(&text),
        None => text,
    }
}

/// Appends the characters that bytes spell; each byte that belongs to none becomes U+FFFD.
fn push_bytes(text: &mut String, bytes: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|_| text.push('\u{fffd}'));
    }
    bytes.clear();
}
