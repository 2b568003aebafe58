//! Text files to binarised folders.

use mae_data::OptionFault;
use mae_data::bpe::{Bpe, Codes, LearnOptions, join};
use mae_data::error::Error;
use mae_data::lines::BadUtf8;
use mae_data::pairs::ParallelDataset;
use mae_data::preprocess::{
    BpeSource, LinePolicy, PreprocessOptions, PreprocessReport, Progress, preprocess,
};
use mae_data::vocab::{EOS, UNK};

use crate::common::{Folder, Random};

fn options(folder: &Folder) -> PreprocessOptions {
    let options = PreprocessOptions::new("de", "en", folder.path("bin"));
    PreprocessOptions { trainpref: Some(folder.prefix("train")), ..options }
}

fn run(options: &PreprocessOptions) -> Result<PreprocessReport, Error> {
    preprocess(options, |_| ())
}

fn corpus() -> Folder {
    let folder = Folder::new();
    folder.write("train.de", "das Haus\nein Haus\n\ndas ist ein Haus\r\n");
    folder.write("train.en", "the house\na house\nempty\nthis is a house\n");
    folder.write("valid.de", "das Auto\n\n");
    folder.write("valid.en", "the car\nnothing\n");
    folder.write("more.de", "Haus\n");
    folder.write("more.en", "house\n");
    folder
}

#[test]
fn binarises_as_fairseq_does() {
    let folder = corpus();
    let (validpref, testpref) =
        (folder.prefix("valid") + "," + &folder.prefix("more"), folder.prefix("more"));
    let options =
        PreprocessOptions { validpref: Some(validpref), testpref: Some(testpref), ..options(&folder) };
    let report = run(&options).unwrap();
    assert_eq!(folder.read("bin/dict.de.txt"), "Haus 3\ndas 2\nein 2\nist 1\n");
    assert_eq!(report.src_vocab, 8);

    let train = ParallelDataset::open(folder.path("bin"), "train", "de", "en").unwrap();
    assert_eq!(train.len(), 3);
    assert_eq!(train.src_vocab.string(&train.src.get(2)), "das ist ein Haus");
    let valid = ParallelDataset::open(folder.path("bin"), "valid", "de", "en").unwrap();
    assert_eq!((valid.src.get(0), valid.src.get(1)), (vec![5, UNK, EOS], vec![EOS]));
    for split in ["valid1", "test"] {
        assert_eq!(ParallelDataset::open(folder.path("bin"), split, "de", "en").unwrap().len(), 1);
    }

    let [train, valid, ..] = report.splits.as_slice() else { panic!("{report:?}") };
    assert_eq!((train.lines, train.written, train.skipped.examples.as_slice()), (4, 3, &[3][..]));
    assert_eq!(
        (train.src.empty.count, train.tgt.as_ref().unwrap().empty.count, train.src.issues.crlf.count),
        (1, 0, 1)
    );
    assert_eq!((train.src.tokens, train.src.unknown), (11, 0));
    assert_eq!((valid.written, valid.src.tokens, valid.src.unknown, valid.src.empty.count), (2, 4, 1, 1));
    assert!((valid.src.unknown_share - 0.25).abs() < 1e-12);
    let said = report.to_string();
    assert!(said.contains("train: 4 lines, 3 pairs written, 1 (line 3) skipped"), "{said}");
    assert!(said.contains("4 tokens, 25.000% replaced by <unk>; empty: 1 (line 2)"), "{said}");
}

#[test]
fn joined_and_given_dictionaries() {
    let folder = corpus();
    let joined = PreprocessOptions { joined_dictionary: true, ..options(&folder) };
    let report = run(&joined).unwrap();
    assert_eq!(Some(report.src_vocab), report.tgt_vocab);
    assert_eq!(folder.read("bin/dict.de.txt"), folder.read("bin/dict.en.txt"));

    let dict = Some(folder.path("bin/dict.de.txt"));
    let given = PreprocessOptions {
        trainpref: None,
        testpref: Some(folder.prefix("more")),
        srcdict: dict.clone(),
        tgtdict: dict,
        destdir: folder.path("again"),
        ..options(&folder)
    };
    run(&given).unwrap();
    assert_eq!(folder.read("again/dict.en.txt"), folder.read("bin/dict.de.txt"));
    let test = ParallelDataset::open(folder.path("again"), "test", "de", "en").unwrap();
    assert_eq!(test.src_vocab.string(&test.src.get(0)), "Haus");
}

#[test]
fn bpe_is_learned_applied_and_kept() {
    let folder = Folder::new();
    let mut random = Random(8);
    let mut text = |n: usize| -> Vec<String> {
        (0..n)
            .map(|_| (0..6).map(|_| random.word(&['a', 'b', 'n', 'ö'], 5)).collect::<Vec<_>>().join(" "))
            .collect()
    };
    let (de, en) = (text(300), text(300));
    folder.write("train.de", de.join("\n"));
    folder.write("train.en", en.join("\n"));
    let learn = BpeSource::Learn(LearnOptions { merges: 50, min_frequency: 2 });
    let options = PreprocessOptions { bpe: learn, joined_dictionary: true, ..options(&folder) };
    let mut last = 0;
    let report = preprocess(&options, |progress| {
        if let Progress::Learning { done, total: 50 } = progress {
            last = done;
        }
    })
    .unwrap();
    assert_eq!((report.bpe_merges, last), (Some(50), 50));

    let data = ParallelDataset::open(folder.path("bin"), "train", "de", "en").unwrap();
    let bpe = Bpe::new(&Codes::load(folder.path("bin/bpe.codes")).unwrap());
    for (i, (src, tgt)) in de.iter().zip(&en).enumerate() {
        assert_eq!(data.src_vocab.string(&data.src.get(i)), bpe.segment_line(src));
        assert_eq!(join(&data.tgt_vocab.string(&data.tgt.get(i))), *tgt);
    }
    // The codes it kept give the same folder again, from compressed text, too.
    let codes = BpeSource::Codes(folder.path("bin/bpe.codes"));
    let again = PreprocessOptions { bpe: codes, destdir: folder.path("again"), ..options };
    run(&again).unwrap();
    for name in ["dict.de.txt", "dict.en.txt", "bpe.codes"] {
        assert_eq!(folder.read(&format!("again/{name}")), folder.read(&format!("bin/{name}")), "{name}");
    }
    for name in ["train.de-en.de.bin", "train.de-en.en.idx"] {
        let read = |dir: &str| std::fs::read(folder.path(dir).join(name)).unwrap();
        assert_eq!(read("again"), read("bin"), "{name}");
    }
}

#[test]
fn policies() {
    let folder = corpus();
    let mut options = options(&folder);
    options.empty.train = LinePolicy::Error;
    let said = run(&options).unwrap_err().to_string();
    assert!(said.contains("train.de, line 3: the line is empty"), "{said}");

    options.empty.train = LinePolicy::Keep;
    (options.max_line_tokens, options.too_long.train) = (3, LinePolicy::Skip);
    let report = run(&options).unwrap();
    let train = &report.splits[0];
    assert_eq!((train.written, train.skipped.examples.as_slice()), (3, &[4][..]));
    assert_eq!((train.src.too_long.count, train.tgt.as_ref().unwrap().too_long.count), (1, 1));

    options.too_long.train = LinePolicy::Error;
    let said = run(&options).unwrap_err().to_string();
    assert!(said.contains("line 4: 4 tokens are over the limit of 3"), "{said}");
    options.max_line_tokens = 0;
    (options.too_long.train, options.empty.train) = (LinePolicy::Skip, LinePolicy::Skip);
    assert!(run(&options).unwrap_err().to_string().contains("no training pair is left"));
}

#[test]
fn failures_leave_nothing_behind() {
    let folder = corpus();
    folder.write("valid.en", "one line\n");
    let options = PreprocessOptions { validpref: Some(folder.prefix("valid")), ..options(&folder) };
    match run(&options) {
        Err(Error::LineCountMismatch { src_lines: 2, tgt_lines: 1, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read_dir(folder.path("bin")).unwrap().count(), 0);
}

#[test]
fn bad_text_is_refused_or_repaired() {
    let folder = corpus();
    folder.write("train.de", b"das \xff Haus\nein\ndas\nist\n");
    let mut options = options(&folder);
    assert!(matches!(run(&options), Err(Error::BadUtf8 { line: 1, .. })));
    options.bad_utf8 = BadUtf8::Replace;
    assert_eq!(run(&options).unwrap().splits[0].src.issues.bad_utf8.count, 1);
}

#[test]
fn options_that_make_no_sense_are_errors() {
    let folder = corpus();
    let good = options(&folder);
    let dict = Some(folder.path("train.de"));
    let lang = |lang: &str| PreprocessOptions { target_lang: lang.into(), ..good.clone() };
    let both = (dict.clone(), dict);
    let joined =
        PreprocessOptions { joined_dictionary: true, srcdict: both.0, tgtdict: both.1, ..good.clone() };
    for (options, fault) in [
        (PreprocessOptions { trainpref: None, ..good.clone() }, OptionFault::NoDictionaries),
        (lang("de"), OptionFault::SameLanguage("de".into())),
        (lang("../en"), OptionFault::Language("../en".into())),
        (joined, OptionFault::TwoJoinedDictionaries),
    ] {
        match run(&options) {
            Err(Error::Options(found)) => assert_eq!(found, fault),
            other => panic!("{fault}: {other:?}"),
        }
    }
    let nowhere = folder.prefix("none");
    match run(&PreprocessOptions { trainpref: Some(nowhere.clone()), ..good.clone() }) {
        Err(Error::NoText { name }) => assert_eq!(name, format!("{nowhere}.de")),
        other => panic!("{other:?}"),
    }
    let codes = BpeSource::Codes(folder.path("none"));
    assert!(matches!(run(&PreprocessOptions { bpe: codes, ..good }), Err(Error::Io { .. })));
}

#[test]
fn splits_of_an_earlier_run_keep_their_dictionaries_and_codes() {
    let folder = corpus();
    let learn = |merges| BpeSource::Learn(LearnOptions { merges, min_frequency: 1 });
    let both =
        PreprocessOptions { validpref: Some(folder.prefix("valid")), bpe: learn(3), ..options(&folder) };
    run(&both).unwrap();
    let (dict, codes) = (folder.read("bin/dict.de.txt"), folder.read("bin/bpe.codes"));
    // The same again, and what is made with the dictionaries and codes that are there.
    run(&PreprocessOptions { validpref: None, ..both.clone() }).unwrap();
    let more = PreprocessOptions {
        trainpref: None,
        validpref: None,
        testpref: Some(folder.prefix("more")),
        srcdict: Some(folder.path("bin/dict.de.txt")),
        tgtdict: Some(folder.path("bin/dict.en.txt")),
        bpe: BpeSource::Codes(folder.path("bin/bpe.codes")),
        ..both.clone()
    };
    run(&more).unwrap();
    // Other dictionaries, or other codes, while splits stay.
    let fewer = PreprocessOptions { validpref: None, bpe: learn(9), ..both.clone() };
    let plain = PreprocessOptions { bpe: BpeSource::None, ..more };
    for (options, words) in [(fewer, "dict.de.txt"), (plain, "codes")] {
        let error = run(&options).unwrap_err().to_string();
        assert!(error.contains("the split `t") && error.contains(words), "{error}");
        assert_eq!(
            (folder.read("bin/dict.de.txt"), folder.read("bin/bpe.codes")),
            (dict.clone(), codes.clone())
        );
    }
    // All of them anew.
    run(&PreprocessOptions { testpref: Some(folder.prefix("more")), bpe: learn(9), ..both }).unwrap();
    assert_ne!(folder.read("bin/bpe.codes"), codes);
}
