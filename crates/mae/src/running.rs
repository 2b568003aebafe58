//! Lines that are translated as they come.

use std::collections::HashMap;
use std::sync::Arc;

use mae_data::{MemoryDataset, PackedBatch};
use mae_model::ExpertMode;
use mae_translate::{
    BatchLimits, ExpertChoice, Fitted, GateReport, Job, RunningBatch, Side, SwitchedOff, TextForm, Ticket,
    TokenCounts, Translated, gates_of,
};

use crate::error::Result;
use crate::options::TranslateOptions;
use crate::translation::Translation;
use crate::translator::Translator;

/// Number of a line in [`Running`].
pub type LineId = u64;

/// Lines that join and leave while others are being translated, for servers and other programs that cannot wait
/// for a whole batch.
///
/// [`Running::submit`] hands a line in, [`Running::step`] takes all translations one token further and returns
/// those that are done. Every line has options of its own, and its translation is that of
/// [`Translator::translate`], whoever its neighbours are.
///
/// ```
/// use mae::{BatchLimits, Device, TranslateOptions, Translator};
/// # let place = tempfile::tempdir().unwrap();
/// # let folder = place.path();
/// # let words = std::sync::Arc::new(mae::data::Vocab::from_counts([("guten", 1), ("morgen", 1)], Default::default()));
/// # let config = mae::model::ModelConfig { max_positions: 9, ..mae::model::ModelConfig::arch("transformer_tiny")? };
/// # let model = mae::model::Translator::new(&config, [words.len(); 2], Device::cpu().engine(), 1)?;
/// # mae::model::folder::ModelFolder { model, source: words.clone(), target: words, codes: None, text: Default::default() }.save(folder)?;
///
/// let translator = Translator::load(folder, &Device::cpu())?;
/// let mut running = translator.running(BatchLimits::default());
/// let line = running.submit("guten morgen", &TranslateOptions::default())?;
/// while !running.is_idle() {
///     for (id, found) in running.step()? {
///         assert_eq!(id, line);
///         println!("{}", found?.text());
///     }
/// }
/// # Ok::<(), mae::Error>(())
/// ```
pub struct Running<'t> {
    translator: &'t Translator,
    limits: BatchLimits,
    /// One batch for each choice of experts, as all sentences of a step compute with the same.
    batches: Vec<Batch<'t>>,
    lines: HashMap<(u64, Ticket), Line>,
    /// Lines that are done without a search.
    done: Vec<(LineId, Translation)>,
    next: LineId,
    next_batch: u64,
}

/// Lines with the same experts.
struct Batch<'t> {
    id: u64,
    experts: ExpertChoice,
    /// Seed of random experts; 0 for others.
    seed: u64,
    off: Vec<SwitchedOff>,
    mode: ExpertMode,
    running: RunningBatch<'t>,
}

/// A line that is being translated.
struct Line {
    id: LineId,
    form: TextForm,
    counts: TokenCounts,
    /// The source, if gates are asked for.
    source: Option<Vec<u32>>,
    number: u32,
}

impl Translator {
    /// Starts to translate lines as they come, within these limits.
    pub fn running(&self, limits: BatchLimits) -> Running<'_> {
        Running {
            translator: self,
            limits,
            batches: Vec::new(),
            lines: HashMap::new(),
            done: Vec::new(),
            next: 0,
            next_batch: 0,
        }
    }
}

impl Running<'_> {
    /// Hands a line in. Fails for options that contradict each other or that the model cannot do.
    pub fn submit(&mut self, line: &str, options: &TranslateOptions) -> Result<LineId> {
        options.search.check()?;
        let models = self.translator.models();
        let Fitted { sentences, counts } = models.encode(Side::Source, &[line], options.form);
        let (source, id, number) = (sentences.get(0).to_vec(), self.next, options.first_line as u32);
        let at = self.batch_for(options)?;
        if source.len() <= 1 {
            self.done.push((id, Translation::new(models, options.form, counts[0], Translated::empty())));
        } else {
            let job = Job {
                source: source.clone(),
                prefix: Vec::new(),
                number,
                options: Arc::new(options.search.clone()),
            };
            let batch = &mut self.batches[at];
            let ticket = batch.running.submit(job)?;
            let source = (options.gates == GateReport::All).then_some(source);
            self.lines.insert(
                (batch.id, ticket),
                Line { id, form: options.form, counts: counts[0], source, number },
            );
        }
        self.next += 1;
        Ok(id)
    }

    /// Drops a line, if it is not done yet.
    pub fn cancel(&mut self, id: LineId) {
        self.done.retain(|(done, _)| *done != id);
        let found = self.lines.iter().find(|(_, line)| line.id == id).map(|(&place, _)| place);
        let Some((batch, ticket)) = found else { return };
        self.lines.remove(&(batch, ticket));
        if let Some(batch) = self.batches.iter_mut().find(|other| other.id == batch) {
            batch.running.cancel(ticket);
        }
    }

    /// Number of lines that have not joined the others yet.
    pub fn waiting(&self) -> usize {
        self.batches.iter().map(|batch| batch.running.waiting()).sum()
    }

    /// Number of lines that are being translated.
    pub fn running(&self) -> usize {
        self.batches.iter().map(|batch| batch.running.running()).sum()
    }

    /// Returns true if every line that was handed in is done and has been returned.
    pub fn is_idle(&self) -> bool {
        self.done.is_empty() && self.batches.iter().all(|batch| batch.running.is_idle())
    }

    /// Takes a step and returns the lines that are done. The result of a line is an error if the model's outputs
    /// for it are not numbers; an error of the step itself is one of the device.
    pub fn step(&mut self) -> Result<Vec<(LineId, Result<Translation>)>> {
        let mut finished: Vec<(LineId, Result<Translation>)> =
            self.done.drain(..).map(|(id, found)| (id, Ok(found))).collect();
        let (translator, lines) = (self.translator, &mut self.lines);
        let _turn = translator.device().turn();
        for Batch { id, mode, running, .. } in &mut self.batches {
            for (ticket, found) in running.step()? {
                // A line that was dropped may still come.
                let Some(line) = lines.remove(&(*id, ticket)) else { continue };
                let found = found.map_err(Into::into).and_then(|hypotheses| {
                    let gates = line.source.map(|source| {
                        let sentences: MemoryDataset = [source].into_iter().collect();
                        let mut one = PackedBatch::from_sources(&sentences.into(), &[0]);
                        one.ids[0] = line.number;
                        let all = std::slice::from_ref(&hypotheses);
                        gates_of(translator.models().first(), &one, all, mode)
                    });
                    let gates = gates.transpose()?.and_then(|mut gates| gates.pop());
                    let translated = Translated { hypotheses, gates };
                    Ok(Translation::new(translator.models(), line.form, line.counts, translated))
                });
                finished.push((line.id, found));
            }
        }
        Ok(finished)
    }

    /// Place of the batch of lines with these experts.
    fn batch_for(&mut self, options: &TranslateOptions) -> Result<usize> {
        let (experts, off) = (options.experts, &options.off);
        // Only random experts depend on the seed.
        let seed = if experts == ExpertChoice::Random { options.search.seed } else { 0 };
        let alike = |batch: &Batch<'_>| batch.experts == experts && batch.seed == seed && batch.off == *off;
        if let Some(at) = self.batches.iter().position(alike) {
            return Ok(at);
        }
        let (models, mode) = (self.translator.models(), self.translator.mode(options)?);
        models.check_experts(&mode)?;
        let running = RunningBatch::new(&models.all(), &mode, self.limits)?;
        // There are many ways to switch experts off; those that nobody uses make place.
        self.batches.retain(|batch| batch.off.is_empty() || !batch.running.is_idle());
        let (id, off) = (self.next_batch, off.clone());
        self.next_batch += 1;
        self.batches.push(Batch { id, experts, seed, off, mode, running });
        Ok(self.batches.len() - 1)
    }
}
