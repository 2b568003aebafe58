//! Running batches on threads of their own: several on one CPU, or one on a GPU.
//!
//! On a CPU a step is a sequence of small products, in which more than a few threads wait for each other: batches with a
//! few threads each translate more than one batch with all of them.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use mae_engine::cpu::threads;
use mae_model::Translator;

use crate::batches::{InOrder, LongestFirst};
use crate::error::{Error, Result};
use crate::feed::{FedBatch, Feed};
use crate::pipeline::Translated;
use crate::running::SearchCaches;

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
    feed: Feed<'_, '_>,
    progress: &mut dyn FnMut(usize),
    each: impl FnMut(usize, Translated) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let threads = rayon::current_num_threads() / batches;
    let order = Mutex::new(LongestFirst::new(feed.group.sources));
    let next = || order.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        let (send, receive) = channel::<Done>();
        for _ in 0..batches {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .spawn_handler(threads::start)
                    .build();
                let pool = pool.map_err(|error| Error::Threads(error.to_string()));
                let fed = pool.and_then(|pool| Ok((pool, feed.batch(SearchCaches::default(), AHEAD)?)));
                match fed {
                    Ok((pool, mut fed)) => pool.install(|| send_all(&mut fed, next, &send)),
                    Err(error) => drop(send.send(Err(error))),
                }
            });
        }
        drop(send);
        receive_all(&receive, progress, each)
    })
}

/// Translates with one running batch on a thread of its own, while `each` gets the results here, in the order of the
/// sentences.
pub(crate) fn apart<E: From<Error>>(
    mut fed: FedBatch<'_, '_>,
    mut order: LongestFirst<'_>,
    progress: &mut dyn FnMut(usize),
    each: impl FnMut(usize, Translated) -> std::result::Result<(), E>,
) -> (SearchCaches, std::result::Result<(), E>) {
    std::thread::scope(|scope| {
        let (send, receive) = channel::<Done>();
        let search = scope.spawn(move || {
            send_all(&mut fed, || order.next(), &send);
            fed.into_caches()
        });
        let done = receive_all(&receive, progress, each);
        // Nobody receives any more: after an error the search ends at its next step.
        drop(receive);
        let caches = search.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (caches, done)
    })
}

/// Translates and sends, until there are no more sentences or nobody receives them.
fn send_all(fed: &mut FedBatch<'_, '_>, mut next: impl FnMut() -> Option<usize>, send: &Sender<Done>) {
    while let Some(done) = fed.step(&mut next).transpose() {
        let failed = done.is_err();
        if send.send(done).is_err() || failed {
            return;
        }
    }
}

/// Hands results over in the order of the sentences, until all senders are gone or something fails.
fn receive_all<E: From<Error>>(
    receive: &Receiver<Done>,
    progress: &mut dyn FnMut(usize),
    mut each: impl FnMut(usize, Translated) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let mut results = InOrder::default();
    receive.iter().try_for_each(|found| results.take(found?, progress, &mut each))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::BatchLimits;
    use crate::options::SearchOptions;
    use crate::pipeline::{GateReport, Group, GroupOptions};
    use mae_data::{EOS, MemoryDataset, Sentences};
    use mae_engine::Device;
    use mae_model::{ExpertMode, ModelConfig};

    /// Results of a batch on a thread of its own come in order, all of them or up to an error, and the caches come back.
    #[test]
    fn a_batch_apart_hands_over_in_order_and_ends_after_an_error() {
        let config = ModelConfig { max_positions: 32, ..ModelConfig::arch("transformer_tiny").unwrap() };
        let model = Translator::new(&config, [9, 9], &Device::cpu(), 1).unwrap();
        let source = |i: u32| (0..i % 5).map(|j| 4 + (i + j) % 5).chain([EOS]).collect::<Vec<u32>>();
        let sources: Sentences = (0..40).map(source).collect::<MemoryDataset>().into();
        let search = SearchOptions { beam: 2, max_len_b: 3, ..SearchOptions::default() };
        let options = GroupOptions { search, mode: ExpertMode::Mix, gates: GateReport::None };
        let (models, group) = ([&model], Group { sources: &sources, prefixes: None, first: 0 });
        let feed = Feed { models: &models, limits: BatchLimits::default(), group, options: &options };
        let mut caches = SearchCaches::default();
        for stop in [usize::MAX, 7, usize::MAX] {
            let (mut given, mut counted) = (0, 0);
            let fed = feed.batch(caches, 8).unwrap();
            let done;
            (caches, done) =
                apart(fed, LongestFirst::new(&sources), &mut |count| counted += count, |i, found| {
                    assert_eq!((i, found.hypotheses[0].tokens.is_empty()), (given, i % 5 == 0));
                    given += 1;
                    if i == stop { Err(Error::NoModels) } else { Ok(()) }
                });
            assert_eq!((done.is_ok(), given), (stop > 40, (stop.saturating_add(1)).min(40)));
            assert!(counted >= given);
        }
    }
}
