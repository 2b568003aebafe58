//! Good files with some bytes changed, cut off or repeated: readers return an error or content, and do not panic.

use std::fs;
use std::path::{Path, PathBuf};

use mae_data::SentencePiece;
use mae_exchange::ct2::Variables;
use mae_exchange::import::hf::safetensors;
use mae_exchange::torch::Checkpoint;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

fn mutations(name: &str, count: usize, read: impl Fn(&[u8])) {
    let good = fs::read(fixture(name)).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    read(&good);
    for _ in 0..count {
        let mut bytes = good.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len());
            match random.below(6) {
                0 => bytes.truncate(at.max(1)),
                1 => bytes[at] = 0xff,
                2 => bytes[at] = 0,
                3 => {
                    let part: Vec<u8> = bytes[at..(at + 8).min(bytes.len())].to_vec();
                    let to = random.below(bytes.len());
                    bytes.splice(to..to, part);
                }
                _ => bytes[at] ^= 1 << random.below(8),
            }
        }
        read(&bytes);
    }
}

#[test]
fn checkpoints() {
    for name in ["exchange/fairseq/zip.pt", "exchange/fairseq/legacy.pt", "exchange/fairseq_lm/lm.pt"] {
        mutations(name, 1_500, |bytes| {
            let Ok(file) = Checkpoint::parse(bytes) else { return };
            let pickle = file.pickle();
            for id in pickle.get(pickle.root, "model").into_iter().chain([pickle.root]) {
                for tensor in file.tensors(id).unwrap_or_default().values() {
                    assert_eq!(tensor.read().len(), tensor.len());
                }
            }
        });
    }
}

#[test]
fn weights() {
    mutations("exchange/ct2/model.bin", 3_000, |bytes| {
        let Ok(file) = Variables::parse(bytes) else { return };
        file.tensors.values().for_each(|tensor| assert_eq!(tensor.read().len(), tensor.len()));
    });
    mutations("exchange/marian/model.safetensors", 3_000, |bytes| {
        let tensors = safetensors(bytes).unwrap_or_default();
        tensors.values().for_each(|tensor| assert_eq!(tensor.read().len(), tensor.len()));
    });
}

#[test]
fn sentencepiece_models() {
    for name in ["unigram_bytes", "merges_suffix", "characters"] {
        mutations(&format!("sentencepiece/{name}.model"), 1_500, |bytes| {
            let Ok(model) = SentencePiece::parse(bytes) else { return };
            let line = model.segment_line(">>x<< The ﬁne Ａ <sep> Häuser\u{a0}日本 <s>");
            model.join(&line);
        });
    }
}
