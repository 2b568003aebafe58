//! Vocabularies against what fairseq's `Dictionary` does.

use mae_data::bpe::WordCounts;
use mae_data::vocab::{EOS, UNK, Vocab, VocabOptions, tokens};

use crate::common::{Folder, Random};

fn build(text: &str, options: VocabOptions) -> Vocab {
    let mut counts = WordCounts::default();
    text.lines().for_each(|line| counts.add_line(line));
    Vocab::from_counts(counts.iter(), options)
}

#[test]
fn order_is_count_then_code_point() {
    let folder = Folder::new();
    let vocab = build("b a Z ä b zz <unk> </s> 漢 a", VocabOptions::default());
    vocab.save(folder.path("dict.txt")).unwrap();
    let expected = "a 2\nb 2\nZ 1\nzz 1\nä 1\n漢 1\nmadeupword0000 0\nmadeupword0001 0\nmadeupword0002 0\n\
                    madeupword0003 0\nmadeupword0004 0\nmadeupword0005 0\n";
    assert_eq!(folder.read("dict.txt"), expected);
    assert_eq!(
        (vocab.len(), vocab.id("a"), vocab.symbol(3), vocab.symbol(99)),
        (16, Some(4), "<unk>", "<unk>")
    );
    assert_eq!((vocab.count(4), vocab.count(99)), (2, 0));
}

#[test]
fn cuts_as_fairseq_cuts() {
    let text = "a a a b b c c d";
    let cut = |threshold, nwords, padding_factor| {
        let vocab = build(text, VocabOptions { threshold, nwords, padding_factor });
        (4..vocab.len() as u32).map(|id| vocab.symbol(id).to_owned()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(cut(0, None, 1), "a b c d");
    assert_eq!(cut(2, None, 0), "a b c");
    assert_eq!(cut(0, Some(6), 1), "a b");
    assert_eq!(cut(0, Some(2), 1), "");
    assert_eq!(cut(3, Some(6), 3), "a madeupword0000");
}

#[test]
fn fillers_skip_words_of_that_name() {
    let vocab = build("madeupword0000", VocabOptions::default());
    assert_eq!((vocab.len(), vocab.symbol(5), vocab.symbol(7)), (8, "madeupword0001", "madeupword0003"));
}

#[test]
fn encodes_as_python_splits() {
    let vocab = build("a b", VocabOptions::default());
    assert_eq!(vocab.encode_line("\u{3000}a\u{a0}b\x1c\tx  a\u{200b}\n"), [4, 5, UNK, UNK, EOS]);
    assert_eq!(vocab.encode_line(" \t"), [EOS]);
    let mut ids = vec![9];
    assert_eq!(vocab.encode_into("x a y", &mut ids), 2);
    assert_eq!(ids, [9, UNK, 4, UNK, EOS]);
    assert_eq!(vocab.string(&[EOS, 4, UNK, 0, 5, EOS]), "a <unk> b");
    assert_eq!(tokens(" a  b ").collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn files_come_back_as_they_were() {
    let folder = Folder::new();
    let mut random = Random(3);
    for _ in 0..50 {
        let text: Vec<_> = (0..20).map(|_| random.line(&['a', 'ß', '#', '漢', '\u{200b}'], 9)).collect();
        let vocab = build(&text.join("\n"), VocabOptions::default());
        vocab.save(folder.path("dict.txt")).unwrap();
        let back = Vocab::load(folder.path("dict.txt")).unwrap();
        assert_eq!(vocab, back);
        assert_eq!(vocab.fingerprint(), back.fingerprint());
        assert!((0..vocab.len() as u32).all(|id| id < 4 || vocab.count(id) == back.count(id)));
        for line in &text {
            assert_eq!(back.string(&back.encode_line(line)), tokens(line).collect::<Vec<_>>().join(" "));
        }
    }
    assert_eq!(folder.names(), ["dict.txt"]);
}

#[test]
fn spaces_and_overwriting_in_files() {
    let folder = Folder::new();
    let text = "a b 3\nx 2\nx 1 #fairseq:overwrite\n</s> 5 #fairseq:overwrite\n";
    let vocab = Vocab::load(folder.write("dict.txt", text)).unwrap();
    assert_eq!((vocab.id("a b"), vocab.id("x"), vocab.id("</s>")), (Some(4), Some(6), Some(7)));
    vocab.save(folder.path("again.txt")).unwrap();
    assert_eq!(folder.read("again.txt"), text);
}

#[test]
fn bad_files_are_errors_with_a_line() {
    let folder = Folder::new();
    let cases = [
        ("a 1\nb\n", "line 2: expected `token count`"),
        ("a 1\nb x\n", "line 2: expected `token count`"),
        ("a 1\n\n", "line 2"),
        (" 1\n", "line 1"),
        ("a -1\n", "line 1"),
        ("a 1\nb 1\na 2\n", "line 3: token `a` is here already, with id 4"),
        ("<pad> 1\n", "line 1: token `<pad>` is here already"),
        ("#fairseq:overwrite\n", "line 1"),
    ];
    for (text, expected) in cases {
        let said = Vocab::load(folder.write("dict.txt", text)).unwrap_err().to_string();
        assert!(said.contains(expected), "{text:?}: {said}");
    }
}

#[test]
fn differences_are_found() {
    let (one, two) = (build("a b", VocabOptions::default()), build("a c", VocabOptions::default()));
    assert_ne!(one, two);
    assert_ne!(one.fingerprint(), two.fingerprint());
    assert_eq!(one.first_difference(&two), Some((5, Some("b"), Some("c"))));
    assert_eq!(one.first_difference(&one.clone()), None);
    assert_eq!(Vocab::new().first_difference(&one), Some((4, None, Some("a"))));
}
