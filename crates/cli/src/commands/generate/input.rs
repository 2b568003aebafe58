//! Input of `mae generate` and `mae interactive`: a split of a binarised folder, or lines of text.

use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail};
use mae_data::pairs::detect_languages;
use mae_data::{BadUtf8, LineReader, ParallelDataset, ParallelLines, Sentences, Vocab, segmentation};
use mae_translate::{Fitted, Models, Side, TextForm, reference_pieces};

use super::notes::Notes;
use crate::stream::tell_issues;

/// Sentences to translate or score, cut to the models' positions.
pub struct Input<'m> {
    /// The models that read it.
    pub models: &'m Models,
    /// Name of the subset or file, for messages.
    pub name: String,
    /// Token ids; the target side is empty where there are no references.
    pub data: ParallelDataset,
    /// References as text, as they are printed and compared.
    pub references: Option<Vec<String>>,
    /// Beginnings of the translations, if any are asked for.
    pub prefixes: Option<Vec<Vec<u32>>>,
    /// Number of the first sentence.
    pub first: usize,
    /// Form of the text, and of its translations.
    pub form: TextForm,
}

/// Options of turning text into tokens and back.
#[derive(Clone, Copy)]
pub struct TextOptions {
    /// Form of the text.
    pub form: TextForm,
    /// Join pieces in all output.
    pub remove_bpe: bool,
}

/// Lines that are read: sources, and references if there are any.
pub struct Lines {
    /// Lines to translate.
    pub sources: Vec<String>,
    /// Their translations.
    pub targets: Option<Vec<String>>,
}

/// References as token ids and as text.
type Targets = (Fitted, Vec<String>);

impl<'m> Input<'m> {
    /// Reads a split of a folder that `preprocess` wrote.
    pub fn from_folder(
        path: &Path,
        subset: &str,
        languages: Option<(&str, &str)>,
        models: &'m Models,
        text: TextOptions,
        notes: &mut Notes,
    ) -> anyhow::Result<Self> {
        let (src, tgt) = match languages {
            Some((src, tgt)) => (src.to_owned(), tgt.to_owned()),
            None => detect_languages(path)?,
        };
        let data = ParallelDataset::open(path, subset, &src, &tgt)
            .with_context(|| format!("cannot read subset `{subset}` of {}", path.display()))?;
        for (lang, found, side) in
            [(&src, &data.src_vocab, Side::Source), (&tgt, &data.tgt_vocab, Side::Target)]
        {
            same_vocabulary(&path.join(format!("dict.{lang}.txt")), found, models.dictionary(side))?;
        }
        let all = |side: &Sentences| Fitted::new((0..side.len()).map(|i| side.get(i)), models.positions());
        let reference = |i: usize| {
            let line = reference_pieces(&data.tgt_vocab, &data.tgt.get(i));
            if text.remove_bpe { segmentation::join(models.codes(), &line) } else { line }
        };
        let targets = Some((all(&data.tgt), (0..data.len()).map(reference).collect()));
        let input = Self::new(subset.to_owned(), 0, all(&data.src), targets, models, notes);
        Ok(Self { form: TextForm::Tokens, ..input })
    }

    /// Reads lines of text; `-` is standard input.
    pub fn from_text(
        source: &Path,
        target: Option<&Path>,
        models: &'m Models,
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

    /// Takes lines that were read already, the first of which has the number `first`.
    pub fn from_lines(
        name: String,
        first: usize,
        lines: Lines,
        models: &'m Models,
        text: TextOptions,
        notes: &mut Notes,
    ) -> Self {
        let sources = models.encode(Side::Source, &lines.sources, text.form);
        let targets = lines.targets.map(|lines| {
            // References are compared with translations in tokens.
            let lines = models.tokens(Side::Target, &lines, text.form);
            let form = if text.form == TextForm::Pieces { text.form } else { TextForm::Tokens };
            let pieces = models.segment(Side::Target, &lines, form);
            let encoded = Fitted::encode(models.dictionary(Side::Target), &pieces, models.positions());
            let segmented = form == TextForm::Tokens && models.codes().is_some();
            let references = match (text.remove_bpe, segmented) {
                (false, _) => pieces,
                (true, true) => lines,
                (true, false) => lines.iter().map(|line| segmentation::join(models.codes(), line)).collect(),
            };
            (encoded, references)
        });
        Self { form: text.form, ..Self::new(name, first, sources, targets, models, notes) }
    }

    fn new(
        name: String,
        first: usize,
        sources: Fitted,
        targets: Option<Targets>,
        models: &'m Models,
        notes: &mut Notes,
    ) -> Self {
        let (targets, references) = targets.unzip();
        let targets = targets.unwrap_or_default();
        notes.source.count(&sources.counts, first);
        notes.target.count(&targets.counts, first);
        let data = ParallelDataset {
            src: sources.sentences.into(),
            tgt: targets.sentences.into(),
            src_vocab: models.dictionary(Side::Source).clone(),
            tgt_vocab: models.dictionary(Side::Target).clone(),
        };
        Self { models, name, data, references, prefixes: None, first, form: TextForm::default() }
    }

    /// Lets translations begin with the first `size` tokens of their references. As in fairseq, the end mark
    /// of a shorter reference is one of them.
    pub fn force_references(&mut self, size: usize) -> anyhow::Result<()> {
        if self.references.is_none() {
            bail!("--prefix-size takes the prefixes from references; give them with --target FILE");
        }
        let begin = |i: usize| self.data.tgt.get(i).into_iter().take(size).collect();
        self.prefixes = Some((0..self.len()).map(begin).collect());
        Ok(())
    }

    /// Lets translations begin with the words of the lines of a file.
    pub fn force_lines_of(&mut self, path: &Path, form: TextForm, notes: &mut Notes) -> anyhow::Result<()> {
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
        self.force(&lines, form, notes);
        Ok(())
    }

    /// Lets translations begin with the words of these lines, one for each sentence.
    pub fn force(&mut self, lines: &[String], form: TextForm, notes: &mut Notes) {
        let (prefixes, fitted) = self.models.encode_prefixes(lines, form);
        notes.prefix.count(&fitted.counts, self.first);
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

/// Opens a file, or standard input (`-`); bytes that are not UTF-8 are replaced and counted.
pub fn open(path: &Path) -> mae_data::Result<LineReader> {
    match path {
        path if path == Path::new("-") => {
            Ok(LineReader::new("standard input", BufReader::new(std::io::stdin()), BadUtf8::Replace))
        }
        path => LineReader::open(path, BadUtf8::Replace),
    }
}

/// Reads all lines of a text and prints what was repaired on standard error.
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
    let quoted = |token: Option<&str>| token.map_or("nothing".into(), |token| format!("`{token}`"));
    bail!(
        "{} is not the dictionary that the model was trained with: id {id} is {} there, {} in the model's; preprocess \
         the text with the model's dictionaries (--srcdict, --tgtdict), or translate it with --source FILE",
        path.display(),
        quoted(found),
        quoted(wanted)
    )
}
