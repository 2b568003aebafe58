//! The model file: protobuf's `ModelProto` of SentencePiece, read with bounds. Nothing is allocated that the file does
//! not hold.

use super::normalize::Spec;
use super::{Entry, Kind};

type Read<T> = Result<T, String>;

/// Parts of the file that matter.
pub(super) struct File {
    pub(super) entries: Vec<Entry>,
    pub(super) trainer: Trainer,
    pub(super) normalizer: Spec,
    pub(super) denormalizer: Option<Spec>,
}

/// Keys of `TrainerSpec` that matter.
pub(super) struct Trainer {
    /// 1 unigram, 2 BPE, 3 word, 4 char.
    pub(super) model_type: u64,
    pub(super) blank_is_suffix: bool,
    pub(super) byte_fallback: bool,
    pub(super) unknown_surface: String,
}

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
    Fixed64,
}

impl File {
    pub(super) fn read(bytes: &[u8]) -> Read<Self> {
        let mut file = Self {
            entries: Vec::new(),
            trainer: Trainer {
                model_type: 1,
                blank_is_suffix: false,
                byte_fallback: false,
                unknown_surface: " \u{2047} ".into(),
            },
            normalizer: Spec::default(),
            denormalizer: None,
        };
        fields(bytes, |number, field| match (number, field) {
            (1, Field::Bytes(piece)) => entry(piece).map(|entry| file.entries.push(entry)),
            (2, Field::Bytes(trainer)) => file.trainer.read(trainer),
            (3, Field::Bytes(spec)) => file.normalizer.read(spec),
            (5, Field::Bytes(spec)) => file.denormalizer.get_or_insert_default().read(spec),
            _ => Ok(()),
        })
        .map_err(|what| format!("not a whole SentencePiece model: {what}"))?;
        if file.entries.is_empty() {
            return Err("not a SentencePiece model: it has no pieces".into());
        }
        Ok(file)
    }
}

impl Trainer {
    fn read(&mut self, bytes: &[u8]) -> Read<()> {
        fields(bytes, |number, field| {
            match (number, field) {
                (3, Field::Number(kind)) => self.model_type = kind,
                (24, Field::Number(flag)) => self.blank_is_suffix = flag != 0,
                (35, Field::Number(flag)) => self.byte_fallback = flag != 0,
                (44, Field::Bytes(surface)) => self.unknown_surface = text(surface)?.to_owned(),
                _ => {}
            }
            Ok(())
        })
    }
}

impl Spec {
    fn read(&mut self, bytes: &[u8]) -> Read<()> {
        fields(bytes, |number, field| {
            match (number, field) {
                (2, Field::Bytes(map)) => self.charsmap = map.to_vec(),
                (3, Field::Number(flag)) => self.add_dummy_prefix = flag != 0,
                (4, Field::Number(flag)) => self.remove_extra_blanks = flag != 0,
                (5, Field::Number(flag)) => self.escape_blanks = flag != 0,
                _ => {}
            }
            Ok(())
        })
    }
}

fn entry(bytes: &[u8]) -> Read<Entry> {
    let mut entry = Entry { text: Box::default(), score: 0.0, kind: Kind::Normal };
    fields(bytes, |number, field| {
        match (number, field) {
            (1, Field::Bytes(piece)) => entry.text = text(piece)?.into(),
            (2, Field::Fixed32(score)) => entry.score = f32::from_le_bytes(score),
            (3, Field::Number(kind)) => {
                entry.kind = match kind {
                    1 => Kind::Normal,
                    2 => Kind::Unknown,
                    3 => Kind::Control,
                    4 => Kind::UserDefined,
                    5 => Kind::Unused,
                    6 => Kind::Byte,
                    other => return Err(format!("a piece of the unknown type {other}")),
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    match entry.score.is_finite() {
        true => Ok(entry),
        false => Err(format!("the score of piece {:?} is no number", entry.text)),
    }
}

fn text(bytes: &[u8]) -> Read<&str> {
    std::str::from_utf8(bytes).map_err(|_| "a piece is not UTF-8".into())
}

/// Calls `found` with each field of a message and its number.
fn fields<'a>(mut bytes: &'a [u8], mut found: impl FnMut(u64, Field<'a>) -> Read<()>) -> Read<()> {
    let take = |bytes: &mut &'a [u8], n: u64| -> Read<&'a [u8]> {
        let n = usize::try_from(n).ok().filter(|&n| n <= bytes.len()).ok_or("it is cut off")?;
        let (head, tail) = bytes.split_at(n);
        *bytes = tail;
        Ok(head)
    };
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => take(&mut bytes, 8).map(|_| Field::Fixed64)?,
            2 => {
                let n = varint(&mut bytes)?;
                Field::Bytes(take(&mut bytes, n)?)
            }
            5 => {
                let b = take(&mut bytes, 4)?;
                Field::Fixed32([b[0], b[1], b[2], b[3]])
            }
            other => return Err(format!("a field of the unknown kind {other}")),
        };
        found(key >> 3, field)?;
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Read<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("it is cut off")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number of more than ten bytes".into())
}
