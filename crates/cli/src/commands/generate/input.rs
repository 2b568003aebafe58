//! What is to be translated: a split of a binarised folder, or lines of text.

use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail};
use mae_data::pairs::detect_languages;
use mae_data::{
    BadUtf8, EOS, LineReader, MemoryDataset, ParallelDataset, ParallelLines, Segmentation, Sentences, Vocab,
    segmentation,
};
use mae_eval::translate::reference_pieces;

use super::models::{Models, named};
use super::notes::Notes;
use crate::stream::tell_issues;

/// Sentences to translate or score, cut to what the model can take.
pub struct Input {
    /// The subset or file, for messages.
    pub name: String,
    /// Token ids; the target side is empty where there are no references.
    pub data: ParallelDataset,
    /// References as text, as they are printed and compared.
    pub references: Option<Vec<String>>,
    /// What made the pieces, for joining them again.
    pub codes: Option<Segmentation>,
    /// What translations must begin with, if anything is asked for.
    pub prefixes: Option<Vec<Vec<u32>>>,
    /// The number of the first sentence.
    pub first: usize,
}

/// How text is turned into tokens and back.
#[derive(Clone, Copy)]
pub struct TextOptions {
    /// Apply the model's BPE codes, if it has any.
    pub segment: bool,
    /// Join pieces in all output.
    pub remove_bpe: bool,
}

/// Lines that are read: sources, and references if there are any.
pub struct Lines {
    /// To be translated.
    pub sources: Vec<String>,
    /// Their translations.
    pub targets: Option<Vec<String>>,
}

impl Input {
    /// A split of a folder that `preprocess` wrote.
    pub fn from_folder(
        path: &Path,
        subset: &str,
        languages: Option<(&str, &str)>,
        models: &Models,
        text: TextOptions,
        notes: &mut Notes,
    ) -> anyhow::Result<Self> {
        let (src, tgt) = match languages {
            Some((src, tgt)) => (src.to_owned(), tgt.to_owned()),
            None => detect_languages(path)?,
        };
        let data = ParallelDataset::open(path, subset, &src, &tgt)
            .with_context(|| format!("cannot read subset `{subset}` of {}", path.display()))?;
        let folder = &models.first;
        for (lang, found, wanted) in
            [(&src, &data.src_vocab, &folder.source), (&tgt, &data.tgt_vocab, &folder.target)]
        {
            same_vocabulary(&path.join(format!("dict.{lang}.txt")), found, wanted)?;
        }
        let all = |side: &Sentences| (0..side.len()).map(|i| side.get(i)).collect::<MemoryDataset>();
        let reference = |i: usize| {
            let line = reference_pieces(&data.tgt_vocab, &data.tgt.get(i));
            if text.remove_bpe { segmentation::join(models.first.codes.as_ref(), &line) } else { line }
        };
        let references = (0..data.len()).map(reference).collect();
        let targets = Some((all(&data.tgt), references));
        Ok(Self::new(subset.to_owned(), 0, all(&data.src), targets, models, notes))
    }

    /// Lines of text; `-` is standard input.
    pub fn from_text(
        source: &Path,
        target: Option<&Path>,
        models: &Models,
        text: TextOptions,
        notes: &mut Notes,
    ) -> anyhow::Result<Self> {
        if source == Path::new("-") && target == Some(source) {
            bail!("--source and --target cannot both be standard input; put one of them in a file");
        }
        let lines = Lines::read(source, target, notes)?;
        let name = if source == Path::new("-") { "stdin".into() } else { source.display().to_string() };
        Ok(Self::from_lines(name, 0, lines, models, text, notes))
    }

    /// Lines that were read already, the first of which has the number `first`.
    pub fn from_lines(
        name: String,
        first: usize,
        lines: Lines,
        models: &Models,
        text: TextOptions,
        notes: &mut Notes,
    ) -> Self {
        let folder = &models.first;
        let (src, _) = MemoryDataset::encode(&folder.source, &pieces(&lines.sources, models, text, 0));
        let targets = lines.targets.map(|lines| {
            let pieces = pieces(&lines, models, text, 1);
            let (tgt, _) = MemoryDataset::encode(&folder.target, &pieces);
            let segmented = text.segment && folder.codes.is_some();
            let references = match (text.remove_bpe, segmented) {
                (false, _) => pieces,
                (true, true) => lines,
                (true, false) => {
                    lines.iter().map(|line| segmentation::join(folder.codes.as_ref(), line)).collect()
                }
            };
            (tgt, references)
        });
        Self::new(name, first, src, targets, models, notes)
    }

    fn new(
        name: String,
        first: usize,
        src: MemoryDataset,
        targets: Option<(MemoryDataset, Vec<String>)>,
        models: &Models,
        notes: &mut Notes,
    ) -> Self {
        let src = notes.source.fit(src, first);
        let (tgt, references) = targets.unzip();
        let tgt = notes.target.fit(tgt.unwrap_or_default(), first);
        let (src_vocab, tgt_vocab) = (models.first.source.clone(), models.first.target.clone());
        let data = ParallelDataset { src: src.into(), tgt: tgt.into(), src_vocab, tgt_vocab };
        let codes = models.first.codes.clone();
        Self { name, data, references, codes, prefixes: None, first }
    }

    /// Translations begin with the first `size` tokens of their references. As in fairseq, the end mark of a shorter
    /// reference is one of them.
    pub fn force_references(&mut self, size: usize) -> anyhow::Result<()> {
        if self.references.is_none() {
            bail!("--prefix-size takes the prefixes from references; give them with --target FILE");
        }
        let begin = |i: usize| self.data.tgt.get(i).into_iter().take(size).collect();
        self.prefixes = Some((0..self.len()).map(begin).collect());
        Ok(())
    }

    /// Translations begin with the words of the lines of a file.
    pub fn force_lines_of(
        &mut self,
        path: &Path,
        models: &Models,
        text: TextOptions,
        notes: &mut Notes,
    ) -> anyhow::Result<()> {
        let lines = Lines::read(path, None, notes)?.sources;
        if lines.len() != self.len() {
            bail!(
                "{} has {} lines, {} has {}: a prefix (it may be empty) is needed for every line",
                self.name,
                self.len(),
                path.display(),
                lines.len()
            );
        }
        self.force(&lines, models, text, notes);
        Ok(())
    }

    /// Translations begin with the words of these lines, one for each sentence.
    pub fn force(&mut self, lines: &[String], models: &Models, text: TextOptions, notes: &mut Notes) {
        let (ids, _) = MemoryDataset::encode(&models.first.target, &pieces(lines, models, text, 1));
        let ids = notes.prefix.fit(ids, self.first);
        let without_end = |i: usize| ids.get(i).iter().copied().filter(|&id| id != EOS).collect();
        let prefixes: Vec<Vec<u32>> = (0..ids.len()).map(without_end).collect();
        let of_nothing = |(i, prefix): (usize, &Vec<u32>)| !prefix.is_empty() && self.data.src.size(i) <= 1;
        let lost = prefixes.iter().enumerate().filter(|&each| of_nothing(each)).count();
        if lost > 0 {
            notes.add(format!("{lost} prefixes of empty lines are left out: nothing is translated there"));
        }
        self.prefixes = Some(prefixes);
    }

    /// Number of sentences.
    pub fn len(&self) -> usize {
        self.data.src.len()
    }
}

/// Lines as the model's pieces, where it has codes; side 0 is the source.
fn pieces(lines: &[String], models: &Models, text: TextOptions, side: usize) -> Vec<String> {
    match models.segmenters().filter(|_| text.segment) {
        Some(segmenters) => segmenters[side].segment_lines(lines),
        None => lines.to_vec(),
    }
}

/// A reader of a file, or of standard input (`-`); bytes that are not UTF-8 are replaced and counted.
pub fn open(path: &Path) -> mae_data::Result<LineReader> {
    match path {
        path if path == Path::new("-") => {
            Ok(LineReader::new("standard input", BufReader::new(std::io::stdin()), BadUtf8::Replace))
        }
        path => LineReader::open(path, BadUtf8::Replace),
    }
}

/// All lines of a text; what was repaired is told.
pub fn all_lines(path: &Path) -> anyhow::Result<Vec<String>> {
    let mut reader = open(path)?;
    let lines = reader.by_ref().collect::<mae_data::Result<Vec<String>>>()?;
    tell_issues(&reader);
    Ok(lines)
}

impl Lines {
    fn read(source: &Path, target: Option<&Path>, notes: &mut Notes) -> anyhow::Result<Self> {
        let mut src = open(source)?;
        let Some(target) = target else {
            let sources = src.by_ref().collect::<Result<_, _>>()?;
            notes.repaired(&src);
            return Ok(Self { sources, targets: None });
        };
        let mut pairs = ParallelLines { src, tgt: open(target)? };
        let (mut sources, mut targets) = (Vec::new(), Vec::new());
        while let Some((src, tgt)) = pairs.next_pair()? {
            sources.push(src.to_owned());
            targets.push(tgt.to_owned());
        }
        notes.repaired(&pairs.src);
        notes.repaired(&pairs.tgt);
        Ok(Self { sources, targets: Some(targets) })
    }
}

fn same_vocabulary(path: &Path, found: &Vocab, wanted: &Vocab) -> anyhow::Result<()> {
    let Some((id, found, wanted)) = found.first_difference(wanted) else { return Ok(()) };
    bail!(
        "{} is not the dictionary that the model was trained with: id {id} is {} there, {} in the model's; preprocess \
         the text with the model's dictionaries (--srcdict, --tgtdict), or translate it with --source FILE",
        path.display(),
        named(found),
        named(wanted)
    )
}
