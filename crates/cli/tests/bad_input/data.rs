//! Binarised folders: indices, ids, dictionaries, codes.

use super::{copy, cut, poke, refused, remove, replace, rewrite};

const IDX: &str = "bin/train.de-en.de.idx";
const BIN: &str = "bin/train.de-en.de.bin";
const DICT: &str = "bin/dict.de.txt";
const CODES: &str = "bin/bpe.codes";

#[test]
fn damaged_datasets_are_refused() {
    refused(&[
        (
            "other languages",
            |_| {},
            "train bin -s fr -t en --save-dir new",
            &["bin: holds de-en, not fr-en", "--source-lang"],
        ),
        ("no folder", |_| {}, "train nowhere --save-dir new", &["nowhere: there is no such folder"]),
        (
            "index cut off",
            |s| cut(s, IDX, 5),
            "TRAIN",
            &[IDX, "its 40 sentences need 506", "preprocess again"],
        ),
        (
            "index cut in its header",
            |s| s.write(IDX, "MMIDIDX"),
            "TRAIN",
            &[IDX, "not a memory-mapped dataset index"],
        ),
        ("empty index", |s| s.write(IDX, ""), "TRAIN", &[IDX, "not a memory-mapped dataset index"]),
        (
            "index of old fairseq",
            |s| s.write(IDX, "TNTIDX\0\0"),
            "TRAIN",
            &[IDX, "old `lazy`/`cached` format"],
        ),
        (
            "index of another version",
            |s| poke(s, IDX, 9, &[2]),
            "TRAIN",
            &[IDX, "version 2", "only version 1"],
        ),
        ("ids that are floats", |s| poke(s, IDX, 17, &[6]), "TRAIN", &[IDX, "number type 6"]),
        (
            "2^60 sentences",
            |s| poke(s, IDX, 18, &(1_u64 << 60).to_le_bytes()),
            "TRAIN",
            &[IDX, "1152921504606846976"],
        ),
        (
            "a sentence of negative length",
            |s| poke(s, IDX, 26, &[0xff; 4]),
            "TRAIN",
            &[IDX, "sentence 0 (-1 tokens"],
        ),
        (
            "a sentence far away",
            |s| poke(s, IDX, 26 + 160, &[0xff; 7]),
            "TRAIN",
            &[IDX, "sentence 0", "lies outside"],
        ),
        (
            "ids cut off",
            |s| cut(s, BIN, 3),
            "TRAIN",
            &[IDX, "sentence 39", BIN, "cut off or from another run"],
        ),
        ("no ids", |s| s.write(BIN, ""), "TRAIN", &[IDX, "sentence 0", "which has 0 bytes"]),
        ("ids missing", |s| remove(s, BIN), "TRAIN", &["cannot open", BIN]),
        (
            "sides of different runs",
            |s| {
                copy(s, "bin/valid.de-en.en.idx", "bin/train.de-en.en.idx");
                copy(s, "bin/valid.de-en.en.bin", "bin/train.de-en.en.bin");
            },
            "TRAIN",
            &["has 40 sentences", "has 8", "different runs"],
        ),
        (
            "ids that are nonsense",
            |s| poke(s, BIN, 0, &[4; 40]),
            "TRAIN",
            &[BIN, "sentence 0", "has id 1028"],
        ),
        (
            "a sentence without its end",
            |s| poke(s, BIN, 0, &[4, 0].repeat(20)),
            "TRAIN",
            &[BIN, "sentence 0", "does not end in </s>"],
        ),
        ("no training set", |s| remove(s, IDX), "TRAIN", &["the splits of this folder are valid", IDX]),
        (
            "a folder of texts",
            |_| {},
            "train . --save-dir new",
            &["holds no binarised parallel text", "preprocess"],
        ),
    ]);
}

#[test]
fn damaged_dictionaries_are_refused() {
    refused(&[
        (
            "ids outside the dictionary",
            |s| rewrite(s, DICT, |l| l.truncate(2)),
            "TRAIN",
            &[
                BIN,
                "has id",
                "the vocabulary beside it has 6 entries",
                "put the right one back or preprocess again",
            ],
        ),
        ("no dictionary", |s| remove(s, DICT), "TRAIN", &["cannot open", DICT]),
        ("empty dictionary", |s| s.write(DICT, ""), "TRAIN", &[DICT, "the dictionary is empty"]),
        (
            "a token twice",
            |s| rewrite(s, DICT, |l| l.push(l[0])),
            "TRAIN",
            &[DICT, "is here already, with id 4", "#fairseq:overwrite"],
        ),
        (
            "a count missing",
            |s| rewrite(s, DICT, |l| l[2] = "word"),
            "TRAIN",
            &["bin/dict.de.txt, line 3: expected `token count`, found `word`"],
        ),
        (
            "a count below 0",
            |s| rewrite(s, DICT, |l| l[2] = "word -5"),
            "TRAIN",
            &["bin/dict.de.txt, line 3"],
        ),
        (
            "a count of 2^70",
            |s| rewrite(s, DICT, |l| l[1] = "word 1180591620717411303424"),
            "TRAIN",
            &["bin/dict.de.txt, line 2"],
        ),
        (
            "a dictionary in Latin-1",
            |s| s.write(DICT, b"h\xfctte 3\n"),
            "TRAIN",
            &["bin/dict.de.txt, line 1: byte 2", "iconv"],
        ),
        (
            "a dictionary that is a text",
            |s| s.write("words", "ein hund\n"),
            "preprocess -s de -t en --trainpref train --destdir new --srcdict words --tgtdict bin/dict.en.txt",
            &["words, line 1: expected `token count`", "is this a dict.txt?"],
        ),
    ]);
}

#[test]
fn damaged_codes_are_refused() {
    refused(&[
        (
            "codes cut in a merge",
            |s| s.write(CODES, "#version: 0.2\nh u\nhu"),
            "TRAIN",
            &["bin/bpe.codes, line 3", "expected two symbols", "`hu`"],
        ),
        (
            "codes with a line lost",
            |s| s.write(CODES, "#version: 0.2\nh u\n\nt a\n"),
            "TRAIN",
            &["bin/bpe.codes, line 3", "damaged"],
        ),
        (
            "codes of version 9",
            |s| replace(s, CODES, "0.2", "9"),
            "TRAIN",
            &["bin/bpe.codes, line 1", "versions 0.1 and 0.2"],
        ),
        (
            "codes that are no text",
            |s| s.write(CODES, [7, 0, 255, 3]),
            "TRAIN",
            &["bin/bpe.codes, line 1: byte 3"],
        ),
        (
            "codes and a tokeniser",
            |s| s.write("bin/tokenizer.json", "{}"),
            "TRAIN",
            &["bin: holds more than one of bpe.codes", "remove"],
        ),
    ]);
}
