//! Corpora as they are downloaded, made here in small, and what preparation makes of them.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use mae_data::bpe::LearnOptions;
use mae_data::error::Error;
use mae_data::lines::BadUtf8;
use mae_data::moses::CleanOptions;
use mae_data::prepare::recipes::{self, NewsCommentary};
use mae_data::prepare::{
    CleanWhen, Corpus, HoldOut, Pieces, PrepareOptions, PrepareReport, Text, TextRules, prepare,
};
use mae_data::{ParallelDataset, Setting};

use crate::common::Folder;

const SETS: [&str; 5] = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"];

fn tgz(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

/// 47 training pairs, of which the third is too uneven; two lines in each test set.
fn iwslt14() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for (lang, word, talk) in [("de", "Häuser", "Über Häuser"), ("en", "houses", "About houses")] {
        let mut train = format!("<url>http://x.{lang}</url>\n<keywords>a</keywords>\n<talkid>7</talkid>\n");
        train += &format!("<title>{talk}</title>\n<description>{talk}: It's \"so\".</description>\n");
        let long = if lang == "de" { " sehr viele kleine alte schöne" } else { "" };
        train += &format!("Uneven{long}.\n");
        (4..=47).for_each(|i| train += &format!(" {i} {word}, {i} x.\n"));
        files.push((format!("de-en/train.tags.de-en.{lang}"), train.into_bytes()));
        for set in SETS {
            let text = format!(
                "<?xml version=\"1.0\"?>\n<title>no</title>\n<seg id=\"1\"> {set}’s {word} </seg>\n<seg id=\"2\">End.</seg>\n"
            );
            files.push((format!("de-en/IWSLT14.{set}.de-en.{lang}.xml"), text.into_bytes()));
        }
        files.push((format!("de-en/README.{lang}"), b"not wanted".to_vec()));
    }
    files
}

fn prepare_iwslt14(folder: &Folder, place: PathBuf) -> Result<PrepareReport, Error> {
    let options = recipes::iwslt14("de", "en", &folder.path("out"))?;
    let pieces = Pieces::Joint(LearnOptions { merges: 20, min_frequency: 2 });
    let options = PrepareOptions { pieces, ..options };
    let corpus = recipes::iwslt14_corpus(&[place], &options, |_| ())?;
    prepare(&corpus, &options, |_| ())
}

#[test]
fn iwslt14_is_what_the_script_makes() {
    let folder = Folder::new();
    let archive = folder.write("de-en.tgz", tgz(&iwslt14()));
    let report = prepare_iwslt14(&folder, archive).unwrap();
    let (name, tallies) = &report.cleaned[0];
    assert_eq!((name.as_str(), tallies.pairs, tallies.kept, tallies.ratio.count), ("train", 47, 46, 1));
    assert_eq!((report.pairs, report.held_out_valid), (47, 2));

    let train = folder.read("out/tmp/train.de");
    let head = "über häuser\nüber häuser : it &apos; s &quot; so &quot; .\n4 häuser , 4 x .\n";
    assert!(train.starts_with(head), "{train}");
    assert_eq!(train.lines().count(), 44);
    // Of what cleaning leaves, the 23rd and the 46th: titles are 1 and 2, and 4 is third.
    assert_eq!(folder.read("out/tmp/valid.en"), "24 houses , 24 x .\n47 houses , 47 x .\n");
    let test: String =
        SETS.iter().map(|set| format!("{} &apos;s houses\nend .\n", set.to_lowercase())).collect();
    assert_eq!(folder.read("out/tmp/test.en"), test);
    assert!(folder.read("out/test.raw.de").starts_with("TED.dev2010’s Häuser\nEnd.\nTEDX.dev2012"));
    assert_eq!(folder.read("out/test.en").replace("@@ ", ""), test);
    assert!(folder.read("out/code").starts_with("#version: 0.2\n"));
    assert_eq!(folder.read("out/code"), folder.read("out/data-bin/bpe.codes"));

    let train = ParallelDataset::open(folder.path("out/data-bin"), "train", "de", "en").unwrap();
    assert_eq!(train.len(), 44);
    let first = folder.read("out/train.de").lines().next().map(str::to_owned);
    assert_eq!(Some(train.src_vocab.string(&train.src.get(0))), first);
    assert_ne!(train.src_vocab, train.tgt_vocab, "dictionaries are separate");
    for split in ["valid", "test"] {
        ParallelDataset::open(folder.path("out/data-bin"), split, "de", "en").unwrap();
    }
    let left = fs::read_dir(folder.path("out")).unwrap().chain(fs::read_dir(folder.path("out/tmp")).unwrap());
    assert!(
        left.map(|entry| entry.unwrap().file_name()).all(|name| !name.to_string_lossy().ends_with(".tmp"))
    );
}

/// An archive of `en-PAIR`: a few training lines, and two lines in each set.
fn iwslt17(sets: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for (lang, line) in [("en", "Tokyo is big."), ("zh", "东京很大。")] {
        let mut train =
            "<doc docid=\"1\">\n<url>x</url>\n<speaker>Y</speaker>\n<title>T</title>\n".to_owned();
        (0..5).for_each(|_| train += &format!("{line}\n"));
        train += "<translator href=\"x\">Z</translator>\n</doc>\n";
        files.push((format!("en-zh/train.tags.en-zh.{lang}"), train.into_bytes()));
        for set in sets {
            let text = format!("<seg id=\"1\"> {line} </seg>\n<seg id=\"2\">{set}</seg>\n");
            files.push((format!("en-zh/IWSLT17.TED.{set}.en-zh.{lang}.xml"), text.into_bytes()));
        }
    }
    files
}

#[test]
fn iwslt17_has_its_own_sets_and_chinese_characters() {
    let all = ["dev2010", "tst2010", "tst2011", "tst2012", "tst2013", "tst2014", "tst2015"];
    for sets in [&all[..], &all[..2]] {
        let folder = Folder::new();
        let archive = folder.write("en-zh.tgz", tgz(&iwslt17(sets)));
        // The archive has one order of the languages, the run the other.
        let options = recipes::iwslt17("zh", "en", &folder.path("out")).unwrap();
        let corpus = recipes::iwslt17_corpus(&[archive], &options, |_| ()).unwrap();
        let report = prepare(&corpus, &options, |_| ()).unwrap();
        assert_eq!((report.pairs, report.held_out_valid), (6, 0));
        assert_eq!(folder.read("out/tmp/train.zh"), format!("T\n{}", "东 京 很 大 。\n".repeat(5)));
        assert_eq!(folder.read("out/tmp/valid.en"), "Tokyo is big .\ndev2010\n");
        assert_eq!(folder.read("out/test.raw.zh").lines().count(), 2 * (sets.len() - 1));
    }
    let said = recipes::iwslt17("xx", "en", &Folder::new().path("out")).unwrap_err().to_string();
    assert!(said.contains("`xx`") && said.contains("ro, ru"), "{said}");
}

#[test]
fn wmt16_takes_romanian_with_commas() {
    let folder = Folder::new();
    fs::create_dir(folder.path("in")).unwrap();
    for (lang, role, line) in
        [("en", "src", "The well-known \u{201e}city\u{201d}."), ("ro", "ref", "Oraşul şi ţara, s-a.")]
    {
        folder.write(&format!("in/europarl-v8.ro-en.{lang}"), format!("{line}\n").repeat(3));
        folder.write(&format!("in/SETIMES.en-ro.{lang}"), format!("{line}\n"));
        for set in ["newsdev2016", "newstest2016"] {
            let text = format!("<seg id=\"1\">{line}</seg>\n");
            folder.write(&format!("in/{set}-enro-{role}.{lang}.sgm"), text);
        }
    }
    let options = recipes::wmt16("en", "ro", &folder.path("out")).unwrap();
    let corpus = recipes::wmt16_corpus(&[folder.path("in")], &options, |_| ()).unwrap();
    assert_eq!(prepare(&corpus, &options, |_| ()).unwrap().pairs, 4);
    assert_eq!(folder.read("out/tmp/train.ro"), "Orașul și țara , s @-@ a .\n".repeat(4));
    assert_eq!(folder.read("out/tmp/valid.en"), "The well @-@ known &quot; city . &quot;\n");
    assert_eq!(folder.read("out/test.raw.ro"), "Oraşul şi ţara, s-a.\n");

    let said = recipes::wmt16("en", "de", &folder.path("out")).unwrap_err().to_string();
    assert!(said.contains("English and Romanian, not en and de"), "{said}");
    fs::remove_file(folder.path("in/SETIMES.en-ro.ro")).unwrap();
    let said = recipes::wmt16_corpus(&[folder.path("in")], &options, |_| ()).unwrap_err().to_string();
    assert!(said.contains("SETIMES.en-ro.ro;"), "{said}");
}

#[test]
fn folders_and_archives_in_archives_will_do() {
    let once = Folder::new();
    let archive = once.write("de-en.tgz", tgz(&iwslt14()));
    prepare_iwslt14(&once, archive).unwrap();
    let folder = Folder::new();
    fs::create_dir_all(folder.path("in/texts")).unwrap();
    for (name, bytes) in iwslt14() {
        folder.write(&name.replace("de-en/", "in/texts/"), bytes);
    }
    prepare_iwslt14(&folder, folder.path("in")).unwrap();
    assert!(!folder.path("out/orig").exists(), "nothing was extracted");
    let nested = Folder::new();
    fs::create_dir(nested.path("in")).unwrap();
    nested.write("in/2014-01.tgz", tgz(&[("texts/de/en/de-en.tgz".into(), tgz(&iwslt14()))]));
    prepare_iwslt14(&nested, nested.path("in")).unwrap();
    for name in ["out/code", "out/train.de", "out/data-bin/dict.en.txt"] {
        assert!(once.read(name) == folder.read(name) && once.read(name) == nested.read(name), "{name}");
    }
}

#[test]
fn missing_damaged_and_uneven_files_are_named() {
    let folder = Folder::new();
    let some: Vec<_> = iwslt14().into_iter().filter(|(name, _)| !name.contains("tst2011")).collect();
    let said = prepare_iwslt14(&folder, folder.write("de-en.tgz", tgz(&some))).unwrap_err().to_string();
    assert!(said.contains("IWSLT14.TED.tst2011.de-en.de.xml, IWSLT14.TED.tst2011.de-en.en.xml;"), "{said}");

    let mut cut = tgz(&iwslt14());
    cut.truncate(cut.len() / 2);
    let said = prepare_iwslt14(&folder, folder.write("half.tgz", cut)).unwrap_err().to_string();
    assert!(said.contains("cannot unpack") && said.contains("half.tgz"), "{said}");
    let said = prepare_iwslt14(&folder, folder.path("nowhere.tgz")).unwrap_err().to_string();
    assert!(said.contains("nowhere.tgz"), "{said}");

    let mut uneven = iwslt14();
    uneven[0].1.extend(b"one more\n");
    let fresh = Folder::new();
    let said = prepare_iwslt14(&fresh, fresh.write("de-en.tgz", tgz(&uneven))).unwrap_err().to_string();
    assert!(
        said.contains("train.tags.de-en.de has 48") && said.contains("train.tags.de-en.en has 47"),
        "{said}"
    );
    let left: Vec<_> = fs::read_dir(fresh.path("out")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["orig"], "no half files");
    let fault = recipes::iwslt14("fr", "en", &fresh.path("out")).unwrap_err();
    assert_eq!(fault.settings(), [Setting::Corpus], "{fault}");
}

/// Version 0.1 overflowed the stack, and read the name into memory, whatever its length.
#[test]
fn archives_that_are_made_to_do_harm_are_refused() {
    let mut nested = tgz(&iwslt14());
    for _ in 0..40 {
        nested = tgz(&[("texts/de/en/de-en.tgz".into(), nested)]);
    }
    let folder = Folder::new();
    let said = prepare_iwslt14(&folder, folder.write("nested.tgz", nested)).unwrap_err().to_string();
    assert!(said.contains("nested more than"), "{said}");

    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(1 << 20);
    header.set_path("././@LongLink").unwrap();
    header.set_cksum();
    archive.append(&header, [b'x'; 1 << 20].as_slice()).unwrap();
    let long = archive.into_inner().unwrap().finish().unwrap();
    let said = prepare_iwslt14(&folder, folder.write("long.tgz", long)).unwrap_err().to_string();
    assert!(said.contains("long.tgz") && said.contains("65536 bytes"), "{said}");

    // A cut archive that is not compressed ends without an error of the reader.
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in iwslt14() {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    let mut plain = archive.into_inner().unwrap();
    plain.truncate(512 + 100);
    let fresh = Folder::new();
    let said = prepare_iwslt14(&fresh, fresh.write("cut.tar", plain)).unwrap_err().to_string();
    assert!(said.contains("cannot unpack") && said.contains("cut.tar"), "{said}");
    let left = fs::read_dir(fresh.path("out/orig")).unwrap().count();
    assert_eq!(left, 0, "no short file under its final name");
}

#[test]
fn wmt14_is_cleaned_after_pieces() {
    let folder = Folder::new();
    fs::create_dir(folder.path("in")).unwrap();
    for (lang, word, role) in [("en", "well-known", "src"), ("de", "Nord-Süd", "ref")] {
        let europarl: String = (0..150).map(|i| format!("{word}\u{a0}“{i}” x…\u{200b}\n")).collect();
        folder.write(&format!("in/europarl-v7.de-en.{lang}"), europarl);
        let crawl = if lang == "en" { "a b c d\n" } else { "a b c d e f g\n" };
        let archive = tgz(&[
            (format!("commoncrawl.de-en.{lang}"), crawl.into()),
            (format!("training/news-commentary-v9.de-en.{lang}"), format!("{word} 9\n").into()),
        ]);
        folder.write(&format!("in/{lang}.tgz"), archive);
        let test = format!("<doc>\n<seg id=\"1\">“{word}”</seg>\n</doc>\n");
        folder.write(&format!("in/newstest2014-deen-{role}.{lang}.sgm"), test);
    }
    let options = recipes::wmt14("en", "de", &folder.path("out")).unwrap();
    let options =
        PrepareOptions { pieces: Pieces::Joint(LearnOptions { merges: 40, min_frequency: 2 }), ..options };
    let news = NewsCommentary::Newest;
    let corpus = recipes::wmt14_corpus(&[folder.path("in")], &options, news, |_| ()).unwrap();
    assert!(corpus.train[2].src.ends_with("news-commentary-v9.de-en.en"), "v12 is not there");
    let report = prepare(&corpus, &options, |_| ()).unwrap();
    assert_eq!((report.pairs, report.held_out_valid), (152, 1));
    let first = "well @-@ known &quot; 0 &quot; x ...\n";
    assert!(folder.read("out/tmp/train.en").starts_with(first), "{}", folder.read("out/tmp/train.en"));
    assert_eq!(folder.read("out/tmp/train.en").lines().count(), 151);
    assert_eq!(folder.read("out/tmp/valid.de"), "Nord @-@ Süd &quot; 99 &quot; x ...\n");
    let dropped = report.cleaned.iter().map(|(split, tallies)| (split.as_str(), tallies.ratio.count));
    assert_eq!(dropped.collect::<Vec<_>>(), [("train", 1), ("valid", 0)]);
    assert!(!folder.read("out/train.de").contains("a b c d e f g"));
    assert_eq!(folder.read("out/tmp/test.en"), "“ well @-@ known ”\n");
    let train = ParallelDataset::open(folder.path("out/data-bin"), "train", "en", "de").unwrap();
    assert!(train.len() == 150 && train.src_vocab == train.tgt_vocab);
}

fn plain(folder: &Folder) -> PrepareOptions {
    PrepareOptions {
        dropout: None,
        source_lang: "xx".into(),
        target_lang: "yy".into(),
        out: folder.path("out"),
        train_rules: TextRules::default(),
        eval_rules: TextRules::default(),
        clean: Some((CleanOptions::new(1, 50), CleanWhen::BeforePieces)),
        hold_out: HoldOut::Sizes { valid: 20, test: 30 },
        pieces: Pieces::Separate(LearnOptions { merges: 10, min_frequency: 2 }),
        joined_dictionary: false,
        threshold: 0,
        bad_utf8: BadUtf8::Error,
    }
}

#[test]
fn any_aligned_files_are_split_evenly() {
    let folder = Folder::new();
    // Every tenth pair has an empty side and is dropped.
    let source: String =
        (0..1000).map(|i| if i % 10 == 3 { "\n".into() } else { format!("src {i}\n") }).collect();
    let target: String = (0..1000).map(|i| format!("tgt {i}\n")).collect();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(source.as_bytes()).unwrap();
    let corpus = Corpus {
        train: vec![Text::plain(folder.write("a.gz", packed.finish().unwrap()), folder.write("b", &target))],
        ..Corpus::default()
    };
    let options = plain(&folder);
    let report = prepare(&corpus, &options, |_| ()).unwrap();
    assert_eq!((report.held_out_valid, report.held_out_test), (20, 30));
    let numbers = |name: &str, word: &str| -> Vec<usize> {
        folder.read(name).lines().map(|line| line.strip_prefix(word).unwrap().parse().unwrap()).collect()
    };
    let [train, valid, test] = ["train", "valid", "test"].map(|split| {
        let both = [("xx", "src "), ("yy", "tgt ")]
            .map(|(lang, word)| numbers(&format!("out/tmp/{split}.{lang}"), word));
        assert_eq!(both[0], both[1], "{split} stays aligned");
        both.into_iter().next().unwrap()
    });
    assert!((train.len(), valid.len(), test.len()) == (850, 20, 30));
    assert!(valid.windows(2).all(|pair| (48..=52).contains(&(pair[1] - pair[0]))), "{valid:?}");
    let mut all = [train, valid, test].concat();
    all.sort_unstable();
    assert!(all.into_iter().eq((0..1000).filter(|i| i % 10 != 3)), "each kept pair is in one split");
    assert_eq!(numbers("out/test.raw.yy", "tgt "), numbers("out/tmp/test.xx", "src "));
    for name in ["code.xx", "code.yy", "data-bin/bpe.src.codes", "data-bin/bpe.tgt.codes"] {
        assert!(folder.path(&format!("out/{name}")).exists(), "{name}");
    }
    let greedy = PrepareOptions { hold_out: HoldOut::Sizes { valid: 900, test: 100 }, ..options.clone() };
    let said = prepare(&corpus, &greedy, |_| ()).unwrap_err().to_string();
    assert!(said.contains("cannot be held out of 1000"), "{said}");
    let moses = TextRules { normalize: true, ..TextRules::default() };
    let said =
        prepare(&corpus, &PrepareOptions { train_rules: moses, ..options }, |_| ()).unwrap_err().to_string();
    assert!(said.contains("no rules for the language `xx`"), "{said}");
}
