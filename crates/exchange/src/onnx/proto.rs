//! Messages of protocol buffers, as far as ONNX needs them.

/// A message: fields in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(Vec<u8>);

/// Encodings of fields.
const VARINT: u64 = 0;
const LENGTH: u64 = 2;
const FOUR_BYTES: u64 = 5;

impl Message {
    /// Adds an integer.
    pub(crate) fn int(mut self, field: u32, value: i64) -> Self {
        self.key(field, VARINT);
        // Negative numbers are those of two's complement.
        self.varint(value as u64);
        self
    }

    /// Adds integers of a repeated field.
    pub(crate) fn ints(self, field: u32, values: &[i64]) -> Self {
        values.iter().fold(self, |message, &value| message.int(field, value))
    }

    /// Adds a number.
    pub(crate) fn float(mut self, field: u32, value: f32) -> Self {
        self.key(field, FOUR_BYTES);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Adds bytes.
    pub(crate) fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.key(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a text.
    pub(crate) fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    /// Adds a message.
    pub(crate) fn message(self, field: u32, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Adds messages of a repeated field.
    pub(crate) fn messages(self, field: u32, messages: &[Self]) -> Self {
        messages.iter().fold(self, |message, part| message.message(field, part))
    }

    /// The encoded message.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn key(&mut self, field: u32, kind: u64) {
        self.varint(u64::from(field) << 3 | kind);
    }

    /// Seven bits per byte, the lowest first; the top bit says that others follow.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_encoded_as_the_specification_says() {
        // The examples of protobuf.dev/programming-guides/encoding.
        assert_eq!(Message::default().int(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().text(2, "testing").into_bytes(), b"\x12\x07testing");
        let inner = Message::default().int(1, 150);
        assert_eq!(Message::default().message(3, &inner).into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(
            Message::default().int(1, -2).into_bytes(),
            [&[0x08, 0xfe][..], &[0xff; 8], &[0x01]].concat()
        );
        assert_eq!(Message::default().float(2, 1.0).into_bytes(), [0x15, 0, 0, 0x80, 0x3f]);
        assert_eq!(Message::default().ints(8, &[3, 270]).into_bytes(), [0x40, 3, 0x40, 0x8e, 0x02]);
    }
}
