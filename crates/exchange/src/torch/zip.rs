//! Stored entries of a zip file, which torch writes; zip64 included. Compressed entries are refused.

use std::collections::BTreeMap;
use std::ops::Range;

type Read<T> = Result<T, String>;

const END: [u8; 4] = *b"PK\x05\x06";
const END64: [u8; 4] = *b"PK\x06\x06";
const END64_LOCATOR: [u8; 4] = *b"PK\x06\x07";
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const LOCAL: [u8; 4] = *b"PK\x03\x04";

/// Names of entries and the places of their bytes.
pub(super) fn entries(bytes: &[u8]) -> Read<BTreeMap<String, Range<usize>>> {
    let end = find_end(bytes).ok_or("not a whole zip file: its directory is missing")?;
    let mut count = number(bytes, end + 10, 2)?;
    let mut start = number(bytes, end + 16, 4)?;
    if (count == 0xffff || start == 0xffff_ffff) && end >= 20 && bytes[end - 20..].starts_with(&END64_LOCATOR)
    {
        let end64 = number(bytes, end - 12, 8)?;
        if !at(bytes, end64, 4)?.starts_with(&END64) {
            return Err("its zip64 directory is missing".into());
        }
        let end64 = end64 as usize;
        (count, start) = (number(bytes, end64 + 32, 8)?, number(bytes, end64 + 48, 8)?);
    }
    let mut entries = BTreeMap::new();
    let mut place = start as usize;
    for _ in 0..count {
        if !at(bytes, place as u64, 4)?.starts_with(&ENTRY) {
            return Err("its directory is damaged".into());
        }
        let get = |offset: usize, size: usize| number(bytes, place + offset, size);
        let (name_size, extra_size, comment_size) = (get(28, 2)? as usize, get(30, 2)? as usize, get(32, 2)?);
        let name = at(bytes, (place + 46) as u64, name_size as u64)?;
        let name = std::str::from_utf8(name).map_err(|_| "the name of an entry is not UTF-8")?.to_owned();
        let extra = at(bytes, (place + 46 + name_size) as u64, extra_size as u64)?;
        let mut sizes = [get(24, 4)?, get(20, 4)?, get(42, 4)?];
        zip64_sizes(extra, &mut sizes)?;
        let [size, packed, local] = sizes;
        if get(10, 2)? != 0 || size != packed {
            return Err(format!("the entry `{name}` is compressed; torch stores entries as they are"));
        }
        if get(8, 2)? & 1 != 0 {
            return Err(format!("the entry `{name}` is encrypted"));
        }
        let range = data(bytes, local, size).map_err(|what| format!("the entry `{name}` {what}"))?;
        if entries.insert(name.clone(), range).is_some() {
            return Err(format!("the entry `{name}` is there twice"));
        }
        place = place + 46 + name_size + extra_size + comment_size as usize;
    }
    check_overlap(&entries)?;
    Ok(entries)
}

/// The end record: the last of its mark in the last 64 KiB.
fn find_end(bytes: &[u8]) -> Option<usize> {
    let from = bytes.len().checked_sub(22)?;
    (from.saturating_sub(0xffff)..=from).rev().find(|&at| bytes[at..].starts_with(&END))
}

/// Replaces sizes that did not fit into 32 bits by those of the zip64 field, which holds them in this order.
fn zip64_sizes(mut extra: &[u8], sizes: &mut [u64; 3]) -> Read<()> {
    while extra.len() >= 4 {
        let (kind, size) = (number(extra, 0, 2)?, number(extra, 2, 2)? as usize);
        let field = extra.get(4..4 + size).ok_or("its directory is damaged")?;
        if kind == 1 {
            let mut at = 0;
            for value in sizes.iter_mut().filter(|value| **value == 0xffff_ffff) {
                *value = number(field, at, 8)?;
                at += 8;
            }
        }
        extra = &extra[4 + size..];
    }
    Ok(())
}

/// The bytes of an entry after its local header.
fn data(bytes: &[u8], local: u64, size: u64) -> Read<Range<usize>> {
    let header = at(bytes, local, 30).map_err(|_| "lies outside of the file")?;
    if !header.starts_with(&LOCAL) {
        return Err("has no header where the directory says".into());
    }
    let start = local + 30 + number(header, 26, 2)? + number(header, 28, 2)?;
    at(bytes, start, size).map_err(|_| "is larger than the file")?;
    Ok(start as usize..(start + size) as usize)
}

fn check_overlap(entries: &BTreeMap<String, Range<usize>>) -> Read<()> {
    let mut ranges: Vec<_> = entries.iter().filter(|(_, range)| !range.is_empty()).collect();
    ranges.sort_unstable_by_key(|(_, range)| range.start);
    match ranges.windows(2).find(|pair| pair[0].1.end > pair[1].1.start) {
        Some(pair) => Err(format!("the entries `{}` and `{}` overlap", pair[0].0, pair[1].0)),
        None => Ok(()),
    }
}

fn at(bytes: &[u8], start: u64, size: u64) -> Read<&[u8]> {
    let end = start.checked_add(size).and_then(|end| usize::try_from(end).ok());
    end.and_then(|end| bytes.get(start as usize..end)).ok_or_else(|| "it is cut off".into())
}

fn number(bytes: &[u8], start: usize, size: usize) -> Read<u64> {
    let bytes = at(bytes, start as u64, size as u64)?;
    Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}
