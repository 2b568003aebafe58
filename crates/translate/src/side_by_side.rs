//! Several running batches on one CPU. A step is a sequence of small products, in which more than a few threads wait for
//! each other: batches with a few threads each translate more than one batch with all of them.

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use mae_engine::cpu::threads;
use mae_model::Translator;

use crate::batches::{BatchLimits, InOrder, LongestFirst};
use crate::error::{Error, Result};
use crate::pipeline::{Group, GroupOptions, Translated, with_gates};
use crate::running::RunningBatch;

/// Threads of a batch where there are several.
const THREADS: usize = 4;
/// Fewest sentences for each batch.
const SENTENCES: usize = 64;
/// Sentences that wait in a batch: few, so that batches end at about the same time.
const AHEAD: usize = 32;

/// Number of batches for so many sentences: one for every four threads of a CPU.
pub(crate) fn batches_for(model: Option<&Translator>, sentences: usize) -> usize {
    let on_cpu = model.is_some_and(|model| !model.params().device().is_gpu());
    let most = if on_cpu { rayon::current_num_threads() / THREADS } else { 1 };
    most.min(sentences / SENTENCES).max(1)
}

/// Sentences that a batch has translated.
type Done = Result<Vec<(usize, Translated)>>;

/// Translates a group with several running batches. `each` gets the results in the order of the sentences.
pub(crate) fn side_by_side<E: From<Error>>(
    batches: usize,
    models: &[&Translator],
    limits: BatchLimits,
    (group, options): (Group<'_>, &GroupOptions),
    progress: &mut dyn FnMut(usize),
    mut each: impl FnMut(usize, Translated) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let threads = rayon::current_num_threads() / batches;
    let order = Mutex::new(LongestFirst::new(group.sources));
    std::thread::scope(|scope| {
        let (send, receive) = channel::<Done>();
        for _ in 0..batches {
            let (send, order) = (send.clone(), &order);
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .spawn_handler(threads::start)
                    .build();
                let pool = pool.map_err(|error| Error::Threads(error.to_string()));
                let done = pool
                    .and_then(|pool| pool.install(|| work(models, limits, (group, options), order, &send)));
                if let Err(error) = done {
                    send.send(Err(error)).ok();
                }
            });
        }
        drop(send);
        let mut results = InOrder::default();
        // After an error nobody receives any more, and the batches end at their next step.
        for found in receive {
            let found = found?;
            progress(found.len());
            found.into_iter().for_each(|(i, translated)| results.put(i, translated));
            results.give(&mut each)?;
        }
        Ok(())
    })
}

/// Takes sentences in order, translates them and sends them, until there are no more or nobody receives them.
fn work(
    models: &[&Translator],
    limits: BatchLimits,
    (group, options): (Group<'_>, &GroupOptions),
    order: &Mutex<LongestFirst<'_>>,
    send: &Sender<Done>,
) -> Result<()> {
    let mut batch = RunningBatch::new(models, &options.mode, limits)?;
    let (search, mut tickets) = (Arc::new(options.search.clone()), HashMap::new());
    loop {
        let mut done = Vec::new();
        while batch.waiting() < AHEAD {
            let next = order.lock().unwrap_or_else(PoisonError::into_inner).next();
            match next.map(|i| (i, group.job(i, &search))) {
                Some((i, Some(job))) => drop(tickets.insert(batch.submit(job)?, i)),
                Some((i, None)) => done.push((i, Translated::empty())),
                None => break,
            }
        }
        let over = batch.is_idle();
        let mut found = Vec::new();
        for (ticket, hypotheses) in batch.step()? {
            found.push((tickets.remove(&ticket).expect("submitted above"), hypotheses?));
        }
        done.extend(with_gates(models, &group, options, found)?);
        if send.send(Ok(done)).is_err() || over {
            return Ok(());
        }
    }
}
