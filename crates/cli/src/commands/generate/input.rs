//! What is to be translated: a split of a binarised folder, or lines of text.

use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail};
use mae_data::lines::Tally;
use mae_data::pairs::detect_languages;
use mae_data::{
    BadUtf8, EOS, LineReader, MemoryDataset, ParallelDataset, ParallelLines, Segmentation, Sentences, UNK,
    Vocab, segmentation,
};
use mae_model::folder::ModelFolder;

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
    /// What a side met, for [`Input::report`].
    notes: Vec<String>,
}

impl Input {
    /// A split of a folder that `preprocess` wrote.
    pub fn from_folder(
        path: &Path,
        subset: &str,
        languages: Option<(&str, &str)>,
        folder: &ModelFolder,
        remove_bpe: bool,
    ) -> anyhow::Result<Self> {
        let (src, tgt) = match languages {
            Some((src, tgt)) => (src.to_owned(), tgt.to_owned()),
            None => detect_languages(path).context("--source-lang and --target-lang name a pair")?,
        };
        let data = ParallelDataset::open(path, subset, &src, &tgt)
            .with_context(|| format!("cannot read subset `{subset}` of {}", path.display()))?;
        for (lang, found, wanted) in
            [(&src, &data.src_vocab, &folder.source), (&tgt, &data.tgt_vocab, &folder.target)]
        {
            same_vocabulary(&path.join(format!("dict.{lang}.txt")), found, wanted)?;
        }
        let all = |side: &Sentences| (0..side.len()).map(|i| side.get(i)).collect::<MemoryDataset>();
        // `<unk>` in a reference must not match an `<unk>` in a translation: fairseq writes it `<<unk>>`.
        let reference = |i: usize| {
            let ids = data.tgt.get(i);
            let words = ids.iter().filter(|&&id| id != EOS);
            let words = words.map(|&id| if id == UNK { "<<unk>>" } else { data.tgt_vocab.symbol(id) });
            let line = words.collect::<Vec<_>>().join(" ");
            if remove_bpe { segmentation::join(folder.codes.as_ref(), &line) } else { line }
        };
        let references = (0..data.len()).map(reference).collect();
        Self::new(subset.to_owned(), all(&data.src), Some((all(&data.tgt), references)), folder, Vec::new())
    }

    /// Lines of text; `-` is standard input.
    pub fn from_text(
        source: &Path,
        target: Option<&Path>,
        folder: &ModelFolder,
        segment: bool,
        remove_bpe: bool,
    ) -> anyhow::Result<Self> {
        if source == Path::new("-") && target == Some(source) {
            bail!("--source and --target cannot both be standard input; put one of them in a file");
        }
        let codes = folder.codes.as_ref().filter(|_| segment).map(Segmentation::segmenters);
        let pieces = |lines: &[String], side: usize| match &codes {
            Some(codes) => codes[side].segment_lines(lines),
            None => lines.to_vec(),
        };
        let (sources, targets, notes) = read_lines(source, target)?;
        let (src, _) = MemoryDataset::encode(&folder.source, &pieces(&sources, 0));
        let targets = targets.map(|lines| {
            let pieces = pieces(&lines, 1);
            let (tgt, _) = MemoryDataset::encode(&folder.target, &pieces);
            let references = match (remove_bpe, &codes) {
                (false, _) => pieces,
                (true, Some(_)) => lines,
                (true, None) => {
                    lines.iter().map(|line| segmentation::join(folder.codes.as_ref(), line)).collect()
                }
            };
            (tgt, references)
        });
        let name = if source == Path::new("-") { "stdin".into() } else { source.display().to_string() };
        Self::new(name, src, targets, folder, notes)
    }

    fn new(
        name: String,
        src: MemoryDataset,
        targets: Option<(MemoryDataset, Vec<String>)>,
        folder: &ModelFolder,
        mut notes: Vec<String>,
    ) -> anyhow::Result<Self> {
        let limit = folder.model.config().max_positions;
        let src = fit(src, limit, "source", &mut notes);
        let (tgt, references) = targets.unzip();
        let tgt = fit(tgt.unwrap_or_default(), limit, "target", &mut notes);
        let (src_vocab, tgt_vocab) = (folder.source.clone(), folder.target.clone());
        let data = ParallelDataset { src: src.into(), tgt: tgt.into(), src_vocab, tgt_vocab };
        Ok(Self { name, data, references, codes: folder.codes.clone(), notes })
    }

    /// Number of sentences.
    pub fn len(&self) -> usize {
        self.data.src.len()
    }

    /// Says on standard error what was cut, unknown or repaired.
    pub fn report(&self) {
        self.notes.iter().for_each(|note| eprintln!("mae: {note}"));
    }
}

/// Source lines, target lines, and what was repaired on the way.
type Lines = (Vec<String>, Option<Vec<String>>, Vec<String>);

fn read_lines(source: &Path, target: Option<&Path>) -> anyhow::Result<Lines> {
    let open = |path: &Path| match path {
        path if path == Path::new("-") => {
            Ok(LineReader::new("standard input", BufReader::new(std::io::stdin()), BadUtf8::Replace))
        }
        path => LineReader::open(path, BadUtf8::Replace),
    };
    let mut notes = Vec::new();
    let mut note = |reader: &LineReader| {
        if !reader.issues().is_empty() {
            notes.push(format!("{}: {}", reader.path().display(), reader.issues()));
        }
    };
    let mut src = open(source)?;
    let Some(target) = target else {
        let lines = src.by_ref().collect::<Result<_, _>>()?;
        note(&src);
        return Ok((lines, None, notes));
    };
    let mut pairs = ParallelLines { src, tgt: open(target)? };
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    while let Some((src, tgt)) = pairs.next_pair()? {
        sources.push(src.to_owned());
        targets.push(tgt.to_owned());
    }
    note(&pairs.src);
    note(&pairs.tgt);
    Ok((sources, Some(targets), notes))
}

/// Cuts sentences to the model's positions; notes how many, and how many words are unknown.
fn fit(side: MemoryDataset, limit: usize, what: &str, notes: &mut Vec<String>) -> MemoryDataset {
    let (mut cut, mut with_unknown) = (Tally::default(), Tally::default());
    let (mut words, mut unknown) = (0, 0);
    let mut fitting = MemoryDataset::default();
    for i in 0..side.len() {
        let ids = side.get(i);
        words += ids.len().saturating_sub(1);
        let unknown_here = ids.iter().filter(|&&id| id == UNK).count();
        if unknown_here > 0 {
            unknown += unknown_here;
            with_unknown.add(i as u64 + 1);
        }
        if ids.len() > limit {
            cut.add(i as u64 + 1);
            fitting.push(&[&ids[..limit - 1], &[EOS]].concat());
        } else {
            fitting.push(ids);
        }
    }
    if cut.count > 0 {
        notes.push(format!("{what} lines cut to the {limit} tokens that the model can take: {cut}"));
    }
    if unknown > 0 {
        let share = 100.0 * unknown as f64 / words as f64;
        notes.push(format!(
            "{unknown} of {words} {what} tokens ({share:.1} %) are not in the dictionary and count as <unk>; \
             lines concerned: {with_unknown}"
        ));
    }
    fitting
}

fn same_vocabulary(path: &Path, found: &Vocab, wanted: &Vocab) -> anyhow::Result<()> {
    let Some((id, found, wanted)) = found.first_difference(wanted) else { return Ok(()) };
    let named = |token: Option<&str>| token.map_or("nothing".into(), |token| format!("`{token}`"));
    bail!(
        "{} is not the dictionary that the model was trained with: id {id} is {} there, {} in the model's; preprocess \
         the text with the model's dictionaries (--srcdict, --tgtdict), or translate it with --source FILE",
        path.display(),
        named(found),
        named(wanted)
    )
}
