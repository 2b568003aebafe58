//! The alphabet of byte-level tokenisers: a printable character for each byte.
//!
//! Bytes that print in Latin-1 stand for themselves; the others, in order, for the characters from U+0100 on.

/// The character of a byte.
pub(super) fn char_of(byte: u8) -> char {
    if prints(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !prints(b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The byte of a character, if it is of the alphabet.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match u8::try_from(code) {
        Ok(byte) => prints(byte).then_some(byte),
        Err(_) => (0..=u8::MAX).filter(|&b| !prints(b)).nth(code.checked_sub(0x100)? as usize),
    }
}

fn prints(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_go_there_and_back() {
        assert_eq!((super::char_of(b' '), super::char_of(b'\n'), super::char_of(0xad)), ('Ġ', 'Ċ', 'Ń'));
        assert!((0..=255).all(|byte| super::byte_of(super::char_of(byte)) == Some(byte)));
        assert_eq!(super::byte_of('漢'), None);
    }
}
