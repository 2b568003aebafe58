//! One text to a binarised folder and back.

use mae_data::bpe::{LearnOptions, join};
use mae_data::preprocess::{BpeSource, LinePolicy, Policies};
use mae_data::{Error, IndexedDataset, OptionFault, PreprocessOptions, Setting, TextDataset, preprocess};

const TEXT: &str = " = Valkyria = \n\nthe lower the better , the lower <unk> won\n \nlow lowest lower\n";

fn options(folder: &std::path::Path) -> PreprocessOptions {
    std::fs::write(folder.join("wiki.train.tokens"), TEXT).unwrap();
    std::fs::write(folder.join("wiki.valid.tokens"), "the newest won\n").unwrap();
    let path = |name: &str| Some(folder.join(name).display().to_string());
    PreprocessOptions {
        trainpref: path("wiki.train.tokens"),
        validpref: path("wiki.valid.tokens"),
        ..PreprocessOptions::only_source(folder.join("bin"))
    }
}

#[test]
fn words_come_back_line_by_line() {
    let place = tempfile::tempdir().unwrap();
    let report = preprocess(&options(place.path()), |_| {}).unwrap();
    assert_eq!((report.tgt_vocab, report.splits.len()), (None, 2));
    let train = &report.splits[0];
    // Empty lines are part of the text; `<unk>` is what it says.
    assert_eq!((train.lines, train.written, train.src.empty.count), (5, 5, 2));
    assert_eq!((train.src.tokens, report.splits[1].src.unknown), (3 + 9 + 3 + 5, 1));
    let data = TextDataset::open(place.path().join("bin"), "train").unwrap();
    assert_eq!(data.vocab.len() % 8, 0);
    let lines: Vec<String> = (0..data.lines.len()).map(|i| data.vocab.string(&data.lines.get(i))).collect();
    let want: Vec<String> =
        TEXT.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(lines, want);
    assert!(IndexedDataset::exists(place.path().join("bin/valid")));
}

#[test]
fn pieces_are_stored_with_their_codes() {
    let place = tempfile::tempdir().unwrap();
    let learn = LearnOptions { merges: 12, ..LearnOptions::default() };
    let with_bpe = PreprocessOptions { bpe: BpeSource::Learn(learn), ..options(place.path()) };
    let report = preprocess(&with_bpe, |_| {}).unwrap();
    assert!(report.bpe_merges.is_some_and(|merges| merges > 3));
    let folder = place.path().join("bin");
    assert!(folder.join("bpe.codes").is_file());
    let data = TextDataset::open(&folder, "train").unwrap();
    assert_eq!(join(&data.vocab.string(&data.lines.get(4))), "low lowest lower");
    // Another text with this dictionary and these codes.
    let again = PreprocessOptions {
        trainpref: None,
        srcdict: Some(folder.join("dict.txt")),
        bpe: BpeSource::Codes(folder.join("bpe.codes")),
        destdir: place.path().join("again"),
        ..options(place.path())
    };
    preprocess(&again, |_| {}).unwrap();
    let valid = TextDataset::open(place.path().join("again"), "valid").unwrap();
    assert_eq!(*valid.vocab, *data.vocab);
}

#[test]
fn what_cannot_be_done_is_said() {
    let place = tempfile::tempdir().unwrap();
    let fault = |options: PreprocessOptions| preprocess(&options, |_| {}).unwrap_err();
    let refused = |options: PreprocessOptions| fault(options).to_string();
    let base = options(place.path());
    let joined = PreprocessOptions { joined_dictionary: true, ..base.clone() };
    assert!(matches!(fault(joined), Error::Options(OptionFault::TargetOfOneText)));
    let nothing = PreprocessOptions { trainpref: None, ..base.clone() };
    assert_eq!(fault(nothing).settings(), [Setting::Trainpref, Setting::Srcdict]);
    let error = Policies { train: LinePolicy::Error, eval: LinePolicy::Keep };
    let strict = refused(PreprocessOptions { empty: error, ..base.clone() });
    assert!(strict.contains("wiki.train.tokens") && strict.contains('2'), "{strict}");
    let missing = refused(PreprocessOptions { trainpref: Some("nowhere".into()), ..base });
    assert!(missing.contains("nowhere"), "{missing}");
    assert!(!place.path().join("bin/train.idx").exists() && !place.path().join("bin/dict.txt").exists());
    let error = TextDataset::open(place.path().join("bin"), "train").unwrap_err().to_string();
    assert!(error.contains("dict.txt"), "{error}");
}
