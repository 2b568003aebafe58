//! Words of MeCab and mecab-ko, against goldens that they made with a small dictionary (`tools/mecab_golden.py`).

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use flate2::read::GzDecoder;
use mae_data::Mecab;

use crate::common::{Folder, Random};

const WORDS: &str = include_str!("../../../fixtures/mecab/words.tsv");

/// The dictionary, with or without mecab-ko's penalties for blanks.
fn dictionary(folder: &Folder, penalties: bool) -> PathBuf {
    let from = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/mecab");
    for name in ["sys.dic", "unk.dic", "matrix.bin"] {
        folder.write(name, fs::read(from.join(name)).unwrap());
    }
    let mut chars = Vec::new();
    GzDecoder::new(fs::File::open(from.join("char.bin.gz")).unwrap()).read_to_end(&mut chars).unwrap();
    folder.write("char.bin", chars);
    let rules = fs::read_to_string(from.join("dicrc")).unwrap();
    let kept = rules.lines().filter(|line| penalties || !line.contains("penalty"));
    let dicrc = folder.write("dicrc", kept.collect::<Vec<_>>().join("\n"));
    dicrc.parent().unwrap().to_owned()
}

#[test]
fn words_equal_mecabs() {
    for (name, penalties) in [("ja", false), ("ko", true)] {
        let folder = Folder::new();
        let mecab = Mecab::load(dictionary(&folder, penalties)).unwrap();
        let rows = WORDS.lines().map(|row| row.split('\t').collect::<Vec<_>>());
        let rows: Vec<_> = rows.filter(|row| row[0] == name).collect();
        assert!(rows.len() > 70);
        for row in rows {
            let line = row[1].replace("\\t", "\t");
            assert_eq!(mecab.words(&line).join(" "), row[2], "{name}: {line}");
        }
    }
}

#[test]
fn damaged_dictionaries_are_refused() {
    for name in ["sys.dic", "unk.dic", "matrix.bin", "char.bin"] {
        let folder = Folder::new();
        let place = dictionary(&folder, true);
        let bytes = fs::read(folder.path(name)).unwrap();
        folder.write(name, &bytes[..bytes.len() - 3]);
        let error = Mecab::load(&place).err().expect("an error").to_string();
        assert!(error.contains(name), "{error}");
        fs::remove_file(folder.path(name)).unwrap();
        assert!(Mecab::load(&place).err().expect("an error").to_string().contains(name));
    }
}

/// Whatever a changed byte says, a dictionary is refused or divides lines into parts of themselves.
#[test]
fn changed_bytes_never_panic() {
    let folder = Folder::new();
    let place = dictionary(&folder, true);
    let mut random = Random(3);
    for name in ["sys.dic", "unk.dic", "matrix.bin", "char.bin"] {
        let bytes = fs::read(folder.path(name)).unwrap();
        for _ in 0..200 {
            let mut changed = bytes.clone();
            let at = random.below(changed.len());
            changed[at] = changed[at].wrapping_add(1 + random.below(255) as u8);
            folder.write(name, &changed);
            if let Ok(mecab) = Mecab::load(&place) {
                let line = "학교 에서가다 abx 東京に住む カタカナ😀";
                assert!(mecab.words(line).concat().len() <= line.len());
            }
        }
        folder.write(name, bytes);
    }
}
