//! Text in, batches out: everything between files on disk and the model's input. Nothing here knows tensors.
//!
//! | room | contents |
//! |---|---|
//! | [`lines`], `decompress` | text lines from plain, gzip and zstd files; repairs are counted |
//! | [`files`] | files and folders that must survive: written aside, synced, renamed, locked |
//! | `fingerprint` | hashes to tell data apart |
//! | `folder_record` | files of a binarised folder that belong together |
//! | [`vocab`] | fairseq's `Dictionary` and `dict.txt` |
//! | [`bpe`] | byte-pair encoding with the results of `subword-nmt`: learn, apply, join |
//! | [`tokenizer`] | Hugging Face's `tokenizer.json`, where it is byte-pair encoding |
//! | [`sentencepiece`] | SentencePiece models, equal to the `sentencepiece` package |
//! | [`segmentation`] | codes or tokeniser of a folder: text to pieces and back |
//! | [`dataset`] | memory-mapped token ids in fairseq's `.bin`/`.idx` format |
//! | [`pairs`] | two sides with their vocabularies: a binarised folder, or lines in memory |
//! | [`text`] | one text with its vocabulary, for language models |
//! | [`text_rules`], [`text_record`] | rules for a line before it is cut into pieces; `text.json`: languages and rules of a folder |
//! | [`sampler`] | the sentences of each batch, from (seed, epoch) alone |
//! | `frozen`, `mersenne` | fairseq's batches in fairseq's order, with numpy's random numbers |
//! | [`redraw`] | words cut anew for each epoch, with merges skipped at random |
//! | [`batch`] | packed batches: ids end to end, no padding |
//! | [`blocks`] | one stream cut into blocks, for language models |
//! | [`lexicon`] | probabilities of pairs of words, learned from sentence pairs |
//! | [`moses`] | Moses' tokeniser, detokeniser, normaliser and corpus cleaner, for forty languages |
//! | [`mecab`] | Japanese and Korean words by a dictionary of MeCab |
//! | [`mod@preprocess`] | text files to a binarised folder: `fairseq-preprocess` |
//! | [`mod@prepare`] | a corpus as it was downloaded to splits, codes and a binarised folder |
//! | [`grammar`] | a made-up corpus: English numbers, dates and prices with their German translations |
//! | [`error`], [`options`] | faults, with the place and the remedy; those of options name the options |

#![deny(unsafe_code)]

pub mod batch;
pub mod blocks;
pub mod bpe;
pub mod dataset;
mod decompress;
pub mod error;
pub mod files;
mod fingerprint;
mod folder_record;
mod frozen;
pub mod grammar;
pub mod lexicon;
pub mod lines;
pub mod mecab;
mod mersenne;
pub mod moses;
pub mod options;
pub mod pairs;
pub mod prepare;
pub mod preprocess;
pub mod redraw;
pub mod sampler;
pub mod segmentation;
pub mod sentencepiece;
pub mod text;
pub mod text_record;
pub mod text_rules;
pub mod tokenizer;
pub mod vocab;

pub use batch::{Corpus, PackedBatch};
pub use blocks::{BlockOptions, Blocks, BreakMode};
pub use bpe::Bpe;
pub use dataset::{DatasetWriter, IndexedDataset};
pub use error::{Error, Result};
pub use files::AsideFile;
pub use fingerprint::Fingerprint;
pub use lines::{BadUtf8, LineReader, ParallelLines};
pub use mecab::Mecab;
pub use options::{OptionFault, Setting};
pub use pairs::{MemoryDataset, ParallelDataset, Sentences};
pub use preprocess::{PreprocessOptions, preprocess};
pub use redraw::Redraw;
pub use sampler::{BatchSampler, SamplerOptions};
pub use segmentation::{Segmentation, Segmenter};
pub use sentencepiece::SentencePiece;
pub use text::TextDataset;
pub use text_record::{TextRecord, TextTools};
pub use text_rules::TextRules;
pub use tokenizer::Tokenizer;
pub use vocab::{BOS, EOS, PAD, UNK, Vocab};
