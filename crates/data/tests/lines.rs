//! Reading text: compressed or not, clean or not.

use std::io::Write;
use std::path::Path;

use flate2::{Compression, write::GzEncoder};
use mae_data::error::Error;
use mae_data::lines::{BadUtf8, LineReader, ParallelLines};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::common::Folder;

fn read(path: &Path, policy: BadUtf8) -> (Vec<String>, LineReader) {
    let mut reader = LineReader::open(path, policy).unwrap();
    let mut lines = Vec::new();
    while let Some(line) = reader.next_line().unwrap() {
        lines.push(line.to_owned());
    }
    (lines, reader)
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    compress_to_vec(text.as_bytes(), CompressionLevel::Fastest)
}

#[test]
fn lines_end_at_newlines_only() {
    let folder = Folder::new();
    let path = folder.write("t", "a\u{2028}b\u{85}c\x0cd\re\n\n last");
    let (lines, reader) = read(&path, BadUtf8::Error);
    assert_eq!(lines, ["a\u{2028}b\u{85}c\x0cd\re", "", " last"]);
    assert!(reader.issues().is_empty() && reader.issues().no_final_newline);
}

#[test]
fn repairs_are_counted() {
    let folder = Folder::new();
    let path = folder.write("t", b"\xef\xbb\xbfone\r\ntwo\r\nth\xffree\nfo\0ur\n");
    let (lines, reader) = read(&path, BadUtf8::Replace);
    assert_eq!(lines, ["one", "two", "th\u{fffd}ree", "fo\0ur"]);
    let issues = reader.issues();
    assert_eq!((issues.bom.count, issues.crlf.examples.as_slice()), (1, &[1, 2][..]));
    assert_eq!((issues.bad_utf8.examples.as_slice(), issues.nul.examples.as_slice()), (&[3][..], &[4][..]));
    let said = reader.issues().to_string();
    assert!(said.contains("carriage returns dropped: 2 (line 1, 2)"), "{said}");
    assert_eq!(reader.report().lines, 4);
}

#[test]
fn bad_utf8_is_refused_with_its_place() {
    let folder = Folder::new();
    let path = folder.write("t", b"fine\nth\xffree\n");
    let mut reader = LineReader::open(&path, BadUtf8::Error).unwrap();
    assert_eq!(reader.next_line().unwrap(), Some("fine"));
    match reader.next_line() {
        Err(e @ Error::BadUtf8 { line: 2, byte: 3, .. }) => assert!(e.to_string().contains("line 2")),
        other => panic!("{other:?}"),
    }
    let path = folder.write("u", b"\xff\xfea\0\n\0");
    assert!(matches!(LineReader::open(path, BadUtf8::Error).unwrap().next_line(), Err(Error::Utf16 { .. })));
}

#[test]
fn compressed_files_are_known_by_their_bytes() {
    let folder = Folder::new();
    let expected = ["eins", "zwei", "drei"];
    let members = [gzip("eins\nzw"), gzip("ei\ndrei\n")].concat();
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    let frames = [skippable, zstd("eins\nzw"), zstd(""), zstd("ei\ndrei\n")].concat();
    for (name, bytes) in [("a.gz", &members), ("a.txt", &members), ("b.zst", &frames), ("b", &frames)] {
        assert_eq!(read(&folder.write(name, bytes), BadUtf8::Error).0, expected, "{name}");
    }
}

#[test]
fn damaged_compressed_files_are_errors() {
    let folder = Folder::new();
    let long = "some words that do not repeat 0123456789\n".repeat(500);
    let (gz, zst) = (gzip(&long), zstd(&long));
    let cases = [&gz[..gz.len() / 2], &zst[..zst.len() / 2], b"", &[0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3]];
    for (i, bytes) in cases.into_iter().enumerate() {
        let path = folder.write(if i == 0 { "x.gz" } else { "x.zst" }, bytes);
        let lines: Result<Vec<_>, _> = LineReader::open(&path, BadUtf8::Error).unwrap().collect();
        assert!(matches!(lines, Err(Error::Io { .. })), "case {i}: {lines:?}");
    }
    assert!(matches!(LineReader::open(folder.path("none"), BadUtf8::Error), Err(Error::Io { .. })));
}

#[test]
fn megabyte_lines_are_lines() {
    let folder = Folder::new();
    let long = "ä".repeat(1 << 20);
    let path = folder.write("t", format!("{long}\nb\n"));
    assert_eq!(read(&path, BadUtf8::Error).0, [long.as_str(), "b"]);
}

#[test]
fn sides_of_different_length_are_an_error_with_both_counts() {
    let folder = Folder::new();
    let (src, tgt) = (folder.write("s", "1\n2\n3\n4\n5"), folder.write("t", "1\n2\n"));
    let mut pairs = ParallelLines::open(&src, &tgt, BadUtf8::Error).unwrap();
    assert_eq!(pairs.next_pair().unwrap(), Some(("1", "1")));
    match pairs.next_chunk(10) {
        Err(Error::LineCountMismatch { src_lines: 5, tgt_lines: 2, .. }) => {}
        other => panic!("{other:?}"),
    }
    let mut same = ParallelLines::open(&src, &src, BadUtf8::Error).unwrap();
    assert_eq!((same.next_chunk(3).unwrap().len(), same.next_chunk(3).unwrap().len()), (3, 2));
    assert!(same.next_chunk(3).unwrap().is_empty());
}
