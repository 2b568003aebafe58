//! Text: what is read line by line, archives, tokenisers, translations to score.

use super::{Sandbox, cut, refused, repaired, rewrite};
use crate::common::gzip;

const PREPROCESS: &str = "preprocess -s de -t en --trainpref train --destdir new";

/// A zstd frame of one raw block, which holds 255 bytes at most (RFC 8878).
fn zstd(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("the size is one byte");
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, length];
    frame.extend(&((u32::from(length) << 3) | 1).to_le_bytes()[..3]);
    frame.extend(text.as_bytes());
    frame
}

/// The one entry of a tar archive, without its end.
fn tar(name: &str, content: &str) -> String {
    let mut header =
        format!("{name:\0<100}0000644\00000000\00000000\0{:011o}\000000000000\0        0", content.len());
    header.extend(std::iter::repeat_n('\0', 512 - header.len()));
    let sum: u32 = header.bytes().map(u32::from).sum();
    header.replace_range(148..156, &format!("{sum:06o}\0 "));
    format!("{header}{content:\0<512}")
}

fn long_line(sandbox: &Sandbox) {
    rewrite(sandbox, "train.de", |lines| lines[2] = "x");
    let text = std::fs::read_to_string(sandbox.path("train.de")).unwrap();
    sandbox.write("train.de", text.replacen("\nx\n", &format!("\n{}\n", "hund ".repeat(200_000)), 1));
}

#[test]
fn texts_are_refused_with_their_place() {
    refused(&[
        (
            "sides of different lengths",
            |s| rewrite(s, "train.en", |l| l.truncate(30)),
            PREPROCESS,
            &["train.de has 40", "train.en has 30", "line n of one must translate line n of the other"],
        ),
        (
            "invalid UTF-8",
            |s| s.write("train.de", b"hund\nha\xffus\n"),
            PREPROCESS,
            &["train.de, line 2: byte 3", "--bad-utf8 replace"],
        ),
        ("UTF-16", |s| s.write("train.de", b"\xff\xfeh\0\n\0"), PREPROCESS, &["train.de is UTF-16", "iconv"]),
        (
            "a folder for a text",
            |s| {
                std::fs::remove_file(s.path("train.de")).unwrap();
                std::fs::create_dir(s.path("train.de")).unwrap();
            },
            PREPROCESS,
            &["cannot read train.de", "directory"],
        ),
        ("a text that is not there", |s| super::remove(s, "train.en"), PREPROCESS, &["cannot open train.en"]),
        (
            "empty training text",
            |s| ["train.de", "train.en"].iter().for_each(|name| s.write(name, "")),
            PREPROCESS,
            &["train.de: no training pair is left", "empty"],
        ),
        (
            "nothing but blank lines",
            |s| ["train.de", "train.en"].iter().for_each(|name| s.write(name, "\n \n\t\n")),
            PREPROCESS,
            &["train.de: no training pair is left"],
        ),
        (
            "gzip cut off",
            |s| {
                s.write("gz.de.gz", gzip(&"hund haus\n".repeat(40)));
                cut(s, "gz.de.gz", 100);
                s.write("gz.en", "dog house\n".repeat(40));
            },
            "preprocess -s de -t en --trainpref gz --destdir new",
            &["cannot read gz.de.gz"],
        ),
        (
            "zstd cut off",
            |s| {
                s.write("z.de.zst", zstd("hund haus\n"));
                cut(s, "z.de.zst", 4);
                s.write("z.en", "dog house\n");
            },
            "preprocess -s de -t en --trainpref z --destdir new",
            &["cannot read z.de.zst"],
        ),
        (
            "archive cut off",
            |s| {
                s.write("de-en.tgz", gzip(&tar("train.tags.de-en.de", "hund\n")));
                cut(s, "de-en.tgz", 300);
            },
            "prepare iwslt14 -s de -t en --archive de-en.tgz --out new",
            &["cannot unpack de-en.tgz"],
        ),
        (
            "a text in place of an archive",
            |s| s.write("de-en.tgz", "hund\n"),
            "prepare iwslt14 -s de -t en --archive de-en.tgz --out new",
            &["cannot unpack de-en.tgz", "not a whole tar archive"],
        ),
        (
            "a file in place of the folder",
            |s| s.write("new", "hund\n"),
            "preprocess -s de -t en --trainpref train --destdir new",
            &["cannot create new", "name a folder"],
        ),
        (
            "an output that is an input",
            |s| s.write("new", "hund\n"),
            "tokenize -l de train.de new -o new",
            &["new is an input and would be overwritten"],
        ),
        (
            "archive of something else",
            |s| s.write("de-en.tgz", gzip(&tar("holiday.jpg", "hund\n"))),
            "prepare iwslt14 -s de -t en --archive de-en.tgz --out new",
            &["not found in de-en.tgz", "train.tags.de-en.de", "--archive"],
        ),
        (
            "no archive",
            |s| s.write("de-en.tgz", "<html>404</html>"),
            "prepare iwslt14 -s de -t en --archive de-en.tgz --out new",
            &["de-en.tgz"],
        ),
        (
            "sides of different lengths in prepare",
            |s| rewrite(s, "train.en", |l| l.truncate(30)),
            "prepare parallel -s de -t en --train train --valid-size 2 --test-size 2 --out new",
            &["train.de has 40", "train.en has 30"],
        ),
        (
            "more held out than there is",
            |_| {},
            "prepare parallel -s de -t en --train train --out new",
            &["2000 pairs to validate on", "cannot be held out of 40"],
        ),
        (
            "dropout of merges that nobody learns",
            |_| {},
            "prepare parallel -s de -t en --train train --valid-size 2 --test-size 2 --bpe 0 --bpe-dropout 0.1 --out new",
            &["--bpe-dropout"],
        ),
        (
            "broken tokenizer.json",
            |s| s.write("tok.json", "{\"model\": {\"type\":"),
            "preprocess -s de -t en --trainpref train --destdir new --tokenizer tok.json",
            &["tok.json: not JSON", "line 1 column 18"],
        ),
        (
            "tokenizer.json of another kind",
            |s| s.write("tok.json", "{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}"),
            "preprocess -s de -t en --trainpref train --destdir new --tokenizer tok.json",
            &["tok.json", "`WordPiece` is not supported; BPE is"],
        ),
        (
            "SentencePiece model that is cut off",
            |s| s.write("a.model", [0x0a, 0x0e, 0x0a, 0x05, b'<', b'u']),
            "preprocess -s de -t en --trainpref train --destdir new --spm a.model",
            &["a.model: not a whole SentencePiece model", "cut off"],
        ),
        (
            "nothing to learn merges from",
            |s| s.write("empty", "\n\n"),
            "learn-bpe empty -s 10",
            &["has no words", "check the input files"],
        ),
        (
            "codes of another program",
            |s| s.write("codes", "h u 12\nhu n 7\n"),
            "apply-bpe -c codes train.de",
            &["codes, line 1", "fastBPE", "#version: 0.2"],
        ),
        (
            "text to clean of different lengths",
            |s| rewrite(s, "train.en", |l| l.truncate(3)),
            "clean-corpus train de en new 1 50",
            &["train.de has 40", "train.en has 3"],
        ),
    ]);
}

#[test]
fn translations_that_cannot_be_scored_are_refused() {
    refused(&[
        (
            "references of another length",
            |_| {},
            "score --sys train.de --ref valid.en",
            &["train.de has 40, valid.en has 8"],
        ),
        (
            "no translations",
            |s| s.write("sys", ""),
            "score --sys sys --ref valid.en",
            &["sys has 0, valid.en has 8"],
        ),
        (
            "neither translations nor references",
            |s| ["sys", "ref"].iter().for_each(|name| s.write(name, "")),
            "score --sys sys --ref ref --metric bleu,ter",
            &["nothing to score", "sys has no lines"],
        ),
        (
            "translations in Latin-1",
            |s| s.write("sys", b"\xe4\n"),
            "score --sys sys --ref valid.en",
            &["sys, line 1: byte 1"],
        ),
        ("a folder for translations", |_| {}, "score --sys bin --ref valid.en", &["cannot read bin"]),
        (
            "compounds split for sacreBLEU",
            |_| {},
            "score --sys valid.en --ref valid.en --compound-split",
            &["--multi-bleu"],
        ),
    ]);
}

#[test]
fn oddities_are_repaired_and_counted() {
    repaired(&[
        (
            "NUL bytes",
            |s| rewrite(s, "train.de", |l| l[1] = "hu\0nd"),
            PREPROCESS,
            &["40 pairs written", "NUL characters kept: 1 (line 2)"],
        ),
        (
            "Windows line ends",
            |s| rewrite(s, "train.de", |l| l[39] = "hund\r"),
            PREPROCESS,
            &["40 pairs written", "carriage returns dropped: 1 (line 40)"],
        ),
        (
            "byte-order mark",
            |s| {
                s.write(
                    "train.de",
                    format!("\u{feff}{}", std::fs::read_to_string(s.path("train.de")).unwrap()),
                )
            },
            PREPROCESS,
            &["40 pairs written", "byte-order mark dropped: 1 (line 1)"],
        ),
        (
            "invalid UTF-8 to be replaced",
            |s| {
                s.write("x.de", b"hund\nha\xffus\n");
                s.write("x.en", "dog\nhouse\n");
            },
            "preprocess -s de -t en --trainpref x --destdir new --bad-utf8 replace",
            &["2 pairs written", "invalid UTF-8 replaced: 1 (line 2)"],
        ),
        ("a line of 1 MB", long_line, PREPROCESS, &["40 pairs written", "over-long: 1 (line 3)"]),
        ("a line of 1 MB to clean", long_line, "clean-corpus train de en new 1 50", &["39"]),
        (
            "a word of 1 MB for codes",
            |s| s.write("long", "x".repeat(1_000_000)),
            "apply-bpe -c bin/bpe.codes long -o pieces",
            &[],
        ),
        (
            "a line of 1 MB to translate",
            long_line,
            "generate run/checkpoint_last --source train.de --plain --device cpu --beam 1 --max-len-b 5 --output out",
            &["cut to the 64 tokens", "1 (line 3)"],
        ),
        ("no end of the last line", |s| cut(s, "train.de", 1), PREPROCESS, &["40 pairs written"]),
        (
            "empty lines",
            |s| rewrite(s, "train.de", |l| l[3] = ""),
            PREPROCESS,
            &["39 pairs written", "1 (line 4) skipped"],
        ),
        (
            "empty translations",
            |s| s.write("sys", "\n".repeat(8)),
            "score --sys sys --ref valid.en --metric bleu,chrf,ter",
            &["= 0.0 0.0/0.0/0.0/0.0 (BP = 0.000", "hyp_len = 0 ref_len = 16", "TER", "= 100.0"],
        ),
        (
            "nothing on standard input",
            |_| {},
            "generate run/checkpoint_last --source - --plain --device cpu",
            &["Translated 0 sentences"],
        ),
        ("nobody to talk to", |_| {}, "interactive run/checkpoint_last --device cpu", &[]),
    ]);
}
