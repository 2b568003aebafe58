//! Event files for TensorBoard: scalars of training in `train/`, of validation in `valid/`, over the number of updates.
//!
//! A file is a sequence of TFRecords: length (u64), its checksum, the bytes of a protobuf message `Event`, their checksum;
//! all little-endian, checksums are masked CRC-32C. Of `Event` we write the time (field 1, double), the step (2, varint),
//! the version (3, text) and the summary (5: values of tag and float); and, when a run starts or resumes, a mark (7) that makes
//! TensorBoard forget what an earlier process wrote of the same and later steps.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::log::Event;
use crate::{Error, Result};

/// The files of one run.
pub struct TensorBoard {
    train: EventFile,
    valid: EventFile,
}

impl TensorBoard {
    /// Begins new files in `folder` for a run that has made `updates` updates.
    pub fn open(folder: &Path, updates: u64) -> Result<Self> {
        let file = |part: &str| EventFile::create(&folder.join(part), updates + 1);
        Ok(Self { train: file("train")?, valid: file("valid")? })
    }

    /// Writes the numbers of an event, if it has any.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        match event {
            Event::Train(line) => {
                let mut scalars = vec![
                    ("loss", line.loss),
                    ("nll_loss", line.nll_loss),
                    ("ppl", line.ppl),
                    ("lr", line.lr),
                    ("gnorm", line.gnorm),
                    ("wps", line.wps),
                    ("wpb", line.wpb),
                    ("bsz", line.bsz),
                    ("epoch", line.epoch as f64),
                ];
                scalars.extend(line.gate_loss.map(|loss| ("gate_loss", loss)));
                self.train.scalars(line.num_updates, &scalars)
            }
            Event::Valid(valid) => {
                let mut scalars =
                    vec![("loss", valid.loss), ("nll_loss", valid.nll_loss), ("ppl", valid.ppl)];
                scalars.extend(valid.bleu.map(|bleu| ("bleu", bleu)));
                scalars.extend(valid.gate_entropy.map(|entropy| ("gate_entropy", entropy)));
                if let Some(weights) = valid.head_weights {
                    scalars.push(("head_weights_mean", weights.mean));
                    scalars.push(("head_weights_deviation", weights.deviation));
                }
                self.valid.scalars(valid.num_updates, &scalars)
            }
            _ => Ok(()),
        }
    }
}

struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    fn create(folder: &Path, first_step: u64) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
        // TensorBoard reads files in the order of their names.
        let (seconds, process) = (now().as_secs(), std::process::id());
        let names = (0..).map(|n| format!("events.out.tfevents.{seconds:010}.mae.{process:010}.{n:04}"));
        for path in names.map(|name| folder.join(name)) {
            let file = match File::create_new(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                file => file.map_err(Error::io(&path))?,
            };
            let mut events = Self { path, file };
            events.append(0, |event| field_bytes(event, 3, b"brain.Event:2"))?;
            events.append(first_step, |event| field_bytes(event, 7, &[0x08, 1]))?;
            return Ok(events);
        }
        unreachable!("there are always more numbers")
    }

    fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut entry = Vec::new();
            field_bytes(&mut entry, 1, tag.as_bytes());
            entry.push(2 << 3 | 5);
            entry.extend((*value as f32).to_le_bytes());
            field_bytes(&mut summary, 1, &entry);
        }
        self.append(step, |event| field_bytes(event, 5, &summary))
    }

    /// Appends an event at `step`; `rest` writes its other fields.
    fn append(&mut self, step: u64, rest: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut event = vec![1 << 3 | 1];
        event.extend(now().as_secs_f64().to_le_bytes());
        event.push(2 << 3);
        varint(&mut event, step);
        rest(&mut event);
        self.file.write_all(&record(&event)).map_err(Error::io(&self.path))
    }
}

fn now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = length.to_vec();
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_crc(data).to_le_bytes());
    record
}

/// A field of bytes, text or another message.
fn field_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

/// Seven bits per byte, the lowest first; all bytes but the last have their high bit set.
fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::Validation;

    #[test]
    fn checksums_are_castagnolis() {
        // RFC 3720, B.4.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    /// Reads a file back: steps, and the bytes of what follows.
    fn events(path: &Path) -> Vec<(u8, Vec<u8>)> {
        let bytes = std::fs::read(path).unwrap();
        let (mut at, mut events) = (0, Vec::new());
        while at < bytes.len() {
            let length: [u8; 8] = bytes[at..at + 8].try_into().unwrap();
            let end = at + 12 + u64::from_le_bytes(length) as usize;
            let data = &bytes[at + 12..end];
            assert_eq!(bytes[at + 8..at + 12], masked_crc(&length).to_le_bytes());
            assert_eq!(bytes[end..end + 4], masked_crc(data).to_le_bytes());
            assert_eq!((data[0], data[9]), (0x09, 0x10), "time, then step");
            events.push((data[10], data[11..].to_vec()));
            at = end + 4;
        }
        events
    }

    #[test]
    fn a_validation_becomes_scalars() {
        let folder = tempfile::tempdir().unwrap();
        let mut board = TensorBoard::open(folder.path(), 5).unwrap();
        let valid = Validation { num_updates: 7, loss: 1.5, ..Validation::default() };
        board.write(&Event::Valid(valid)).unwrap();
        TensorBoard::open(folder.path(), 5).unwrap();
        let mut files: Vec<_> = std::fs::read_dir(folder.path().join("valid"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert_eq!(files.len(), 2, "a restart begins a new file");
        let events = events(&files[0]);
        assert_eq!(events[0].1, b"\x1a\x0dbrain.Event:2");
        assert_eq!(events[1], (6, vec![0x3a, 2, 0x08, 1]), "forget from update 6 on");
        let (step, summary) = &events[2];
        let loss = [&b"\x0a\x0b\x0a\x04loss\x15"[..], &1.5f32.to_le_bytes()].concat();
        assert_eq!((*step, summary[0], &summary[2..2 + loss.len()]), (7, 0x2a, &loss[..]));
    }
}
