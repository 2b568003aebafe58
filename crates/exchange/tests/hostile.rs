//! Malformed and hostile files: an error that says what is wrong, bounded memory, and nothing written.

use std::fs;
use std::path::{Path, PathBuf};

use mae_exchange::{Result, import};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/exchange").join(name)
}

/// Most kilobytes that this process has used, where the system says so.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().trim_end_matches(" kB").parse().ok()
}

/// Imports `bytes` in the place of a good file; the error must contain `words`.
fn refused(name: &str, words: &str, result: Result<mae_exchange::Imported>, out: &Path) {
    let said = match result {
        Ok(_) => panic!("{name}: accepted"),
        Err(error) => error.to_string(),
    };
    assert!(said.contains(words), "{name}: {said}");
    assert!(!out.exists(), "{name}: something was written");
    let left = fs::read_dir(out.parent().unwrap()).unwrap().count();
    assert_eq!(left, 1, "{name}: something was left");
}

/// A zip file of stored entries, with sizes and offsets that can lie.
#[derive(Default)]
struct Zip {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    count: u16,
}

impl Zip {
    fn with(mut self, name: &str, data: &[u8]) -> Self {
        let at = self.bytes.len() as u32;
        self.bytes.extend(b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0");
        self.bytes.extend((data.len() as u32).to_le_bytes());
        self.bytes.extend((data.len() as u32).to_le_bytes());
        self.bytes.extend((name.len() as u16).to_le_bytes());
        self.bytes.extend([0, 0]);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(data);
        self.entry(name, data.len() as u32, at, 0)
    }

    fn entry(mut self, name: &str, size: u32, at: u32, method: u16) -> Self {
        self.directory.extend(b"PK\x01\x02\x14\0\x14\0\0\0");
        self.directory.extend(method.to_le_bytes());
        self.directory.extend([0; 8]);
        self.directory.extend(size.to_le_bytes());
        self.directory.extend(size.to_le_bytes());
        self.directory.extend((name.len() as u16).to_le_bytes());
        self.directory.extend([0; 12]);
        self.directory.extend(at.to_le_bytes());
        self.directory.extend(name.as_bytes());
        self.count += 1;
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let (at, size) = (self.bytes.len() as u32, self.directory.len() as u32);
        self.bytes.extend(&self.directory);
        self.bytes.extend(b"PK\x05\x06\0\0\0\0");
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend(size.to_le_bytes());
        self.bytes.extend(at.to_le_bytes());
        self.bytes.extend([0, 0]);
        self.bytes
    }
}

/// A checkpoint with this pickle and one storage of eight floats.
fn checkpoint(pickle: &[u8]) -> Vec<u8> {
    Zip::default().with("a/data.pkl", pickle).with("a/data/0", &[0; 32]).finish()
}

/// `{'model': {'x': <tensor>}}` with a tensor of these parts: offset, sizes, strides.
fn tensor(offset: &[u8], sizes: &[u8], strides: &[u8]) -> Vec<u8> {
    let text = |text: &str| [&[b'X', text.len() as u8, 0, 0, 0], text.as_bytes()].concat();
    let storage =
        [&b"("[..], &text("storage"), b"ctorch\nFloatStorage\n", &text("0"), &text("cpu"), b"K\x08tQ"]
            .concat();
    let call =
        [b"ctorch._utils\n_rebuild_tensor_v2\n(", &storage[..], offset, sizes, strides, b"\x89NtR"].concat();
    let dict = |key: &str, value: &[u8]| [&b"}"[..], &text(key), value, b"s"].concat();
    let model = dict("model", &dict("x", &call));
    let args = [&text("args")[..], b"}s"].concat();
    [&b"\x80\x02"[..], &model, &args, b"."].concat()
}

fn pickles() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let no_model = "no `model`";
    let nested = |n: usize| [vec![b'('; n], b".".to_vec()].concat();
    let mut doubling = b"]q\0".to_vec();
    for _ in 0..40 {
        doubling.extend(b"(h\0h\0lq\0");
    }
    doubling.push(b'.');
    let long = [&b"X\0\0\x01\0"[..], &[b'a'; 1 << 16], b"q\0"].concat();
    let names = [&long[..], &b"h\0h\0\x93".repeat(5000), b"."].concat();
    let axes = [&b"("[..], &b"K\x01".repeat(100_000), b"t"].concat();
    vec![
        ("os.system", b"cos\nsystem\n(X\x04\0\0\0true\x85R.".to_vec(), "it has"),
        ("os.system", b"cos\nsystem\n(X\x04\0\0\0truetR.".to_vec(), no_model),
        ("eval by STACK_GLOBAL", b"\x8c\x08builtins\x8c\x04eval\x93(X\x01\0\0\x001tR.".to_vec(), no_model),
        (
            "a REDUCE bomb",
            [&b"c__builtin__\nbytearray\n("[..], b"\x8a\x06\0\0\0\0\0\x01tR."].concat(),
            no_model,
        ),
        ("NEWOBJ of a class", b"csubprocess\nPopen\n(X\x02\0\0\0lstt\x81.".to_vec(), "a mark is missing"),
        ("INST", b"(X\x02\0\0\0lsios\nsystem\n.".to_vec(), no_model),
        ("OBJ", b"(cos\nsystem\nX\x02\0\0\0lso.".to_vec(), no_model),
        ("BUILD on a class", b"cos\nsystem\n}b.".to_vec(), no_model),
        ("a cycle in the memo", b"]q\0h\0a.".to_vec(), no_model),
        ("a dictionary that holds itself", b"}q\0X\x05\0\0\0modelh\0s.".to_vec(), "neither `args`"),
        ("a doubling bomb", doubling, no_model),
        ("names of one text again and again", names, "names of classes are too long"),
        ("a value stored 600,000 times", [&b"N"[..], &[0x94; 600_000], b"."].concat(), "too many values"),
        ("a tensor of 100,000 axes", tensor(b"K\0", &axes, &axes), "too many axes"),
        ("ten thousand marks", nested(10_000), "nested more than"),
        ("a value that was never stored", b"h\x07.".to_vec(), "never stored"),
        ("POP of nothing", b"0.".to_vec(), "a value is missing"),
        ("an end without a value", b".".to_vec(), "a value is missing"),
        ("a tuple without a mark", b"t.".to_vec(), "a mark is missing"),
        ("an odd dictionary", b"(Nd.".to_vec(), "a key without a value"),
        ("items for a number", b"K\x01(Ne.".to_vec(), "no list"),
        ("entries for a number", b"K\x01(NNu.".to_vec(), "no dictionary"),
        ("a text of 2^40 bytes", b"\x8d\0\0\0\0\0\x01\0\0.".to_vec(), "cut off or too long"),
        ("a text of 2^32 bytes", b"X\xff\xff\xff\xff.".to_vec(), "cut off or too long"),
        ("bytes of 2^63", b"\x8e\0\0\0\0\0\0\0\x80.".to_vec(), "cut off or too long"),
        ("a long of 2^31 bytes", b"\x8b\xff\xff\xff\x7f.".to_vec(), "cut off or too long"),
        ("an unknown instruction", b"\xfe.".to_vec(), "not known"),
        ("an extension", b"\x82\x01.".to_vec(), "not known"),
        ("no end", b"}".to_vec(), "cut off"),
        ("a line without an end", b"cos".to_vec(), "cut off"),
        ("a name that is a number", b"K\x01K\x02\x93.".to_vec(), "no text"),
        ("a text without quotes", b"Sx\n.".to_vec(), "without quotes"),
        ("an integer that is none", b"Ix\n.".to_vec(), "not an integer"),
        ("a float that is none", b"Fx\n.".to_vec(), "not a number"),
        ("a model that is a number", b"}X\x05\0\0\0modelK\x01s.".to_vec(), "neither `args`"),
        ("a negative offset", tensor(b"J\xff\xff\xff\xff", b"K\x01\x85", b"K\x01\x85"), "negative offset"),
        ("an offset past the end", tensor(b"K\x09", b"K\x01\x85", b"K\x01\x85"), "outside of its storage"),
        ("2^40 rows", tensor(b"K\0", b"\x8a\x06\0\0\0\0\0\x01\x85", b"K\x01\x85"), "outside of its storage"),
        (
            "2^40 rows of stride 0",
            tensor(b"K\0", b"\x8a\x06\0\0\0\0\0\x01\x85", b"K\0\x85"),
            "outside of its storage",
        ),
        ("a stride past the end", tensor(b"K\0", b"K\x02\x85", b"K\x09\x85"), "outside of its storage"),
        (
            "a stride of 2^62",
            tensor(b"K\0", b"K\x03\x85", b"\x8a\x08\0\0\0\0\0\0\0\x40\x85"),
            "outside of its storage",
        ),
        ("a negative size", tensor(b"K\0", b"J\xff\xff\xff\xff\x85", b"K\x01\x85"), "no numbers"),
        ("sizes that are texts", tensor(b"K\0", b"X\x01\0\0\x001\x85", b"K\x01\x85"), "no numbers"),
        (
            "fewer strides than sizes",
            tensor(b"K\0", b"K\x02K\x02\x86", b"K\x01\x85"),
            "outside of its storage",
        ),
    ]
}

fn zips() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let good = || Zip::default().with("a/data.pkl", b"}.");
    vec![
        ("an empty file", Vec::new(), ""),
        ("a text", b"hello".to_vec(), "neither a zip file nor a pickle"),
        ("no directory", b"PK\x03\x04".to_vec(), "directory is missing"),
        ("an entry past the end", good().entry("a/data/0", 1 << 30, 0, 0).finish(), "larger than the file"),
        ("a header past the end", good().entry("a/data/0", 4, 1 << 30, 0).finish(), "outside of the file"),
        ("no header", good().entry("a/data/0", 4, 3, 0).finish(), "no header"),
        ("a compressed entry", good().entry("a/data/0", 2, 0, 8).finish(), "compressed"),
        ("entries that overlap", good().entry("a/data/0", 2, 0, 0).finish(), "overlap"),
        ("an entry twice", good().with("a/data.pkl", b"}.").finish(), "twice"),
        ("no pickle", Zip::default().with("a/data/0", b"x").finish(), "no data.pkl"),
        ("big-endian numbers", good().with("a/byteorder", b"big").finish(), "big-endian"),
        ("a storage that is missing", Zip::default().with("a/data.pkl", &tensor(b"K\0", b"K\x01\x85", b"K\x01\x85")).finish(), "is missing"),
        ("a zip that is cut off", { let mut bytes = good().finish(); bytes.truncate(bytes.len() - 30); bytes }, "directory is missing"),
        ("legacy: a wrong number", b"\x80\x02K\x01.".to_vec(), "number of legacy files"),
        ("legacy: cut off", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.".to_vec(), "cut off"),
        ("legacy: a wrong version", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02K\x07.".to_vec(), "unknown version"),
        (
            "legacy: a storage of 2^60 numbers",
            [b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.\x80\x02}.\x80\x02(X\x01\0\0\x000l." as &[u8], &(1_u64 << 60).to_le_bytes()].concat(),
            "larger than the file",
        ),
    ]
}

#[test]
fn checkpoints() {
    let before = peak();
    let work = tempfile::tempdir().unwrap();
    let out = work.path().join("out");
    let path = work.path().join("x.pt");
    let wrapped = pickles().into_iter().map(|(name, pickle, words)| (name, checkpoint(&pickle), words));
    let cases: Vec<_> = wrapped.chain(zips()).collect();
    assert!(cases.len() >= 55, "{}", cases.len());
    for (name, bytes, words) in cases {
        // The first case ends with an instruction too many; what matters is that nothing runs.
        let words = if words == "it has" { "" } else { words };
        fs::write(&path, bytes).unwrap();
        refused(name, words, import::fairseq::import(&path, &golden("fairseq"), &out), &out);
    }
    if let (Some(before), Some(after)) = (before, peak()) {
        assert!(after - before < 96 << 10, "{} KiB", after - before);
    }
}

/// A folder with one file replaced.
fn folder_with(from: &str, name: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> tempfile::TempDir {
    let work = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(golden(from)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), work.path().join(entry.file_name())).unwrap();
    }
    let path = work.path().join(name);
    let bytes = change(fs::read(&path).unwrap());
    fs::write(path, bytes).unwrap();
    work
}

fn replace(from: &'static str, to: &'static str) -> impl Fn(Vec<u8>) -> Vec<u8> {
    move |bytes| String::from_utf8(bytes).unwrap().replacen(from, to, 1).into_bytes()
}

type Change = Box<dyn FnOnce(Vec<u8>) -> Vec<u8>>;

#[test]
fn folders() {
    let set = |at: usize, value: &'static [u8]| -> Change {
        Box::new(move |mut bytes| {
            bytes[at..at + value.len()].copy_from_slice(value);
            bytes
        })
    };
    let cut = |n: usize| -> Change {
        Box::new(move |mut bytes| {
            bytes.truncate(bytes.len() - n);
            bytes
        })
    };
    let text = |from, to| -> Change { Box::new(replace(from, to)) };
    let cases: Vec<(&str, &str, &str, Change, &str)> = vec![
        ("ct2: version 9", "ct2", "model.bin", set(0, b"\x09"), "version 9"),
        ("ct2: 2^32 variables", "ct2", "model.bin", set(26, b"\xff\xff\xff\xff"), ""),
        ("ct2: cut off", "ct2", "model.bin", cut(5), ""),
        (
            "ct2: too long",
            "ct2",
            "model.bin",
            Box::new(|mut b| {
                b.push(0);
                b
            }),
            "left over",
        ),
        ("ct2: another kind", "ct2", "model.bin", set(6, b"Xransfor"), "not supported"),
        (
            "ct2: too few symbols",
            "ct2",
            "shared_vocabulary.json",
            text("\"w7\"", "\"w6\", \"w9\", \"w8\""),
            "rows",
        ),
        ("ct2: no end mark", "ct2", "shared_vocabulary.json", text("</s>", "</x>"), "end mark"),
        ("ct2: vocabulary of numbers", "ct2", "shared_vocabulary.json", text("\"w1\"", "7"), "not a list"),
        (
            "ct2: a start mark in the source",
            "ct2",
            "config.json",
            text("\"add_source_bos\": false", "\"add_source_bos\": true"),
            "add_source_bos",
        ),
        ("hf: model_type", "marian", "config.json", text("\"marian\"", "\"bart\""), "`model_type` = bart"),
        ("hf: activation", "marian", "config.json", text("\"swish\"", "\"quick_gelu\""), "quick_gelu"),
        ("hf: no JSON", "marian", "config.json", cut(4), "not JSON"),
        (
            "hf: a width that lies",
            "marian",
            "config.json",
            text("\"d_model\": 8", "\"d_model\": 16"),
            "expected [14, 16]",
        ),
        (
            "hf: 2^40 layers",
            "marian",
            "config.json",
            text("\"decoder_layers\": 2", "\"decoder_layers\": 1099511627776"),
            "",
        ),
        (
            "hf: 2^40 symbols",
            "marian",
            "config.json",
            text("\"vocab_size\": 13", "\"vocab_size\": 1099511627776"),
            "symbols",
        ),
        ("hf: an id past the end", "marian", "vocab.json", text("10", "100000000000"), "ids up to"),
        (
            "hf: a header that lies",
            "marian",
            "model.safetensors",
            set(0, b"\xff\xff\xff\xff\xff\xff\xff\x7f"),
            "safetensors",
        ),
        ("hf: weights cut off", "marian", "model.safetensors", cut(7), "safetensors"),
        ("hf: spm cut off", "marian", "source.spm", cut(9), "SentencePiece"),
        (
            "hf: offsets that overlap",
            "marian",
            "model.safetensors",
            Box::new(|b| {
                let at = b.windows(13).position(|w| w == b"data_offsets\"").unwrap() + 15;
                let mut b = b;
                b[at] = b'9';
                b
            }),
            "safetensors",
        ),
        ("fsmt: a merge of one symbol", "fsmt", "merges.txt", text("h a 12", "h"), "not a merge"),
        (
            "fsmt: a weight that is missing",
            "fsmt",
            "model.safetensors",
            Box::new(|b| {
                let text = b"model.encoder.layers.0.fc1.weight";
                let at = b.windows(text.len()).position(|w| w == text).unwrap();
                let mut b = b;
                b[at + 6] = b'x';
                b
            }),
            "is missing",
        ),
    ];
    for (name, from, file, change, words) in cases {
        let folder = folder_with(from, file, change);
        let work = tempfile::tempdir().unwrap();
        fs::write(work.path().join("x"), "").unwrap();
        let out = work.path().join("out");
        let result = match from {
            "ct2" => import::ct2::import(folder.path(), &out),
            _ => import::hf::import(folder.path(), &out),
        };
        refused(name, words, result, &out);
    }
}

/// Two files that agree on a size that none of them justifies.
#[test]
fn an_id_that_the_configuration_confirms() {
    let folder = folder_with("marian", "vocab.json", replace("10", "1099511627775"));
    let config = fs::read_to_string(folder.path().join("config.json")).unwrap();
    let config = config.replace("\"vocab_size\": 13", "\"vocab_size\": 1099511627776");
    let config = config.replace("\"decoder_vocab_size\": 13", "\"decoder_vocab_size\": 1099511627776");
    fs::write(folder.path().join("config.json"), config).unwrap();
    let out = folder.path().join("out");
    let said = import::hf::import(folder.path(), &out).map(drop).unwrap_err().to_string();
    assert!(said.contains("symbols with ids up to 1099511627776"), "{said}");
    assert!(!out.exists());
}
