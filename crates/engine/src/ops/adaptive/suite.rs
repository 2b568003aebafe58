//! Adaptive input and softmax: single passes, and passes captured once for batches whose bands differ.

use super::{AdaptiveEmbedding, AdaptiveSoftmax, BandedIds, Bands, InputBand, Orientation, Tail};
use crate::cuda::graph::Replays;
use crate::device::{Device, Numbers};
use crate::ops::embed::sinusoids;
use crate::ops::embed::suite::steps;
use crate::optim::{Nag, StepNumbers, Velocity};
use crate::params::{GroupId, GroupSet, ParamId, ParamsBuilder};
use crate::suite::{Case, OpCase, Outcome, Per, Quantity, Scene, Tolerance, fit, random, starts};
use crate::{Result, Rng, Segments, Tape};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for sizes in [SMALL, ODD, PLAIN] {
        for dropout in [0.0, 0.3] {
            for adapt in [std::convert::identity, OpCase::with_room] {
                // A band without words, before and after the other words have left gradients.
                for lists in [&[ALL][..], &[WITHOUT_LAST, ALL, WITHOUT_LAST], &[ONE_WORD, ALL]] {
                    cases.push(input(sizes, lists, dropout, 0, adapt));
                    cases.push(loss(sizes, lists, dropout, adapt));
                }
            }
        }
        cases.push(input(sizes, &[ALL], 0.3, 5, OpCase::evaluation));
        cases.push(loss(sizes, &[ALL], 0.3, OpCase::evaluation));
        cases.push(log_probs(sizes, std::convert::identity));
    }
    cases.push(input(WIKITEXT, &[ALL], 0.1, 0, OpCase::large));
    cases.push(loss(WIKITEXT, &[ALL], 0.1, OpCase::large));
    cases.push(log_probs(Sizes { rows: 37, ..WIKITEXT }, OpCase::large));
    for adapt in [std::convert::identity, OpCase::with_room, OpCase::evaluation] {
        cases.push(some_rows(&[66, 0, 3, 41], 64, adapt));
        cases.push(some_rows(&[5], 13, adapt));
    }
    // Roundings of the passes and of the updates between them.
    let tolerance = Tolerance::new(4e-2, 2e-4);
    cases.push(Case::new("adaptive passes", "three updates with NAG, captured", tolerance, |d, n| {
        passes(d, n).unwrap_or_else(|error| panic!("{error}"))
    }));
    cases
}

/// Bands b of widths `widths[b]`.
#[derive(Clone, Copy)]
struct Sizes {
    rows: usize,
    cutoffs: &'static [usize],
    types: usize,
    widths: &'static [usize],
}

const SMALL: Sizes = Sizes { rows: 67, cutoffs: &[40, 131], types: 700, widths: &[64, 16, 8] };
/// Nothing is a multiple of anything.
const ODD: Sizes = Sizes { rows: 29, cutoffs: &[3, 5], types: 10, widths: &[6, 3, 1] };
/// Four bands.
const PLAIN: Sizes = Sizes { rows: 131, cutoffs: &[62, 101, 257], types: 1_001, widths: &[40, 24, 16, 8] };
/// The vocabulary of WikiText-103.
const WIKITEXT: Sizes =
    Sizes { rows: 515, cutoffs: &[20_000, 60_000], types: 267_744, widths: &[512, 128, 32] };

impl Sizes {
    fn bands(&self) -> Bands {
        Bands::new(self.cutoffs, self.types)
    }

    fn describe(&self) -> String {
        let Self { rows, cutoffs, types, widths } = self;
        format!("{rows} rows, {types} types cut at {cutoffs:?}, widths {widths:?}")
    }

    /// Ids of the pass' rows.
    fn words(&self, words: Words, stream: u32) -> Vec<u32> {
        let bands = self.bands();
        let count = bands.count() - words.without;
        let mut bits = vec![0; self.rows];
        Rng::new(17, 0).stream(stream).bits16(0, &mut bits);
        let word = |(i, &bits): (usize, &u16)| {
            let band = bands.range((i * i + i / 3) % count);
            let place = if words.one { 0 } else { (usize::from(bits) * band.len()) >> 16 };
            (band.start + place) as u32
        };
        bits.iter().enumerate().map(word).collect()
    }
}

/// Words of a list of ids.
#[derive(Clone, Copy, Debug)]
struct Words {
    /// Bands at the end that have none.
    without: usize,
    /// True if each band has one word only.
    one: bool,
}

const ALL: Words = Words { without: 0, one: false };
const WITHOUT_LAST: Words = Words { without: 1, one: false };
const ONE_WORD: Words = Words { without: 0, one: true };

const TABLES: [&str; 4] = ["table 0", "table 1", "table 2", "table 3"];
const PROJECTIONS: [&str; 4] = ["projection 0", "projection 1", "projection 2", "projection 3"];

fn fan_in(inputs: usize) -> impl Fn(usize, f32) -> f32 + 'static {
    move |_, random| 1.5 * random / (inputs as f32).sqrt()
}

fn describe(sizes: Sizes, lists: &[Words], dropout: f32) -> String {
    format!("{}, {lists:?}, dropout {dropout}", sizes.describe())
}

fn input(
    sizes: Sizes,
    lists: &'static [Words],
    dropout: f32,
    offset: usize,
    adapt: fn(OpCase) -> OpCase,
) -> Case {
    let (bands, width) = (sizes.bands(), sizes.widths[0]);
    let mut case = OpCase::new("adaptive_embed", describe(sizes, lists, dropout));
    for (band, &own) in sizes.widths.iter().enumerate() {
        // The first table has rows that no id names.
        let rows = bands.range(band).len() + if band == 0 { 2 } else { 0 };
        case = case.param(TABLES[band], [rows, own]);
        case = case.param(PROJECTIONS[band], [width, own]).fill(fan_in(own));
    }
    // In search every row is a sentence of its own.
    let lengths = match offset {
        0 => vec![sizes.rows as u32 / 3, 0, sizes.rows as u32 - sizes.rows as u32 / 3],
        _ => vec![1; sizes.rows],
    };
    adapt(case.tolerance(Tolerance::new(1.2e-2, 5e-5))).body(move |s| {
        let positions = sinusoids(s.tape.device(), offset + sizes.rows, width);
        let segments = s.segments(&starts(&lengths));
        let before = steps(s.tape.device(), offset, sizes.rows);
        let tables = tables(s, sizes);
        for (list, &words) in lists.iter().enumerate() {
            let ids = s.banded(&bands, &sizes.words(words, list as u32));
            let e = AdaptiveEmbedding { bands: &tables, positions: &positions, scale: 2.5, dropout };
            let y = s.tape.adaptive_embed(e, &ids, &segments, before.as_ref());
            s.output(["y", "second y", "third y"][list], Per::Row, &y);
        }
    })
}

fn tables(s: &Scene<'_>, sizes: Sizes) -> Vec<InputBand> {
    let band =
        |band: usize| InputBand { table: s.param(TABLES[band]), projection: s.param(PROJECTIONS[band]) };
    (0..sizes.widths.len()).map(band).collect()
}

/// Projections of odd bands are tied ones.
fn tied(band: usize) -> bool {
    band % 2 == 1
}

fn declare_softmax(case: OpCase, sizes: Sizes) -> OpCase {
    let (bands, width) = (sizes.bands(), sizes.widths[0]);
    let head = [bands.range(0).len() + sizes.cutoffs.len(), width];
    let mut case = case.input("features", Per::Row, [sizes.rows, width]);
    case = case.param("head", head).fill(fan_in(width));
    for (band, &own) in sizes.widths.iter().enumerate().skip(1) {
        let projection = if tied(band) { [width, own] } else { [own, width] };
        case = case.param(PROJECTIONS[band], projection).fill(fan_in(width));
        case = case.param(TABLES[band], [bands.range(band).len(), own]).fill(fan_in(own));
    }
    case.tolerance(Tolerance::new(1.5e-2, 5e-5))
}

fn tails(s: &Scene<'_>, sizes: Sizes) -> Vec<Tail> {
    let tail = |band: usize| Tail {
        projection: s.param(PROJECTIONS[band]),
        orientation: if tied(band) { Orientation::Transposed } else { Orientation::Straight },
        vocabulary: s.param(TABLES[band]),
    };
    (1..sizes.widths.len()).map(tail).collect()
}

fn loss(sizes: Sizes, lists: &'static [Words], dropout: f32, adapt: fn(OpCase) -> OpCase) -> Case {
    let case = OpCase::new("adaptive_loss", describe(sizes, lists, dropout));
    adapt(declare_softmax(case, sizes)).body(move |s| {
        let (bands, x, tails) = (sizes.bands(), s.input("features"), tails(s, sizes));
        let softmax = AdaptiveSoftmax { head: s.param("head"), tails: &tails, dropout };
        for (list, &words) in lists.iter().enumerate() {
            let targets = s.banded(&bands, &sizes.words(words, list as u32));
            let sums = s.tape.adaptive_loss(&x, softmax, &targets, 0.25);
            s.numbers("loss and nll", &sums.both());
            s.value("log-probabilities", &sums.log_probs);
        }
    })
}

/// Rows of a value by their numbers: a copy, and its gradient.
fn some_rows(rows: &'static [u32], width: usize, adapt: fn(OpCase) -> OpCase) -> Case {
    let case = OpCase::new("take_rows", format!("rows {rows:?} of [67, {width}]"));
    adapt(case.input("x", Per::Row, [67, width]).tolerance(Tolerance::new(1e-2, 1e-6))).body(move |s| {
        let (x, rows) = (s.input("x"), s.ids(rows));
        let y = s.tape.take_rows(&x, &rows);
        s.output("y", Per::Row, &y);
    })
}

fn log_probs(sizes: Sizes, adapt: fn(OpCase) -> OpCase) -> Case {
    let case = OpCase::new("adaptive_log_probs", sizes.describe());
    adapt(declare_softmax(case, sizes).evaluation()).body(move |s| {
        let (bands, x, tails) = (sizes.bands(), s.input("features"), tails(s, sizes));
        let softmax = AdaptiveSoftmax { head: s.param("head"), tails: &tails, dropout: 0.0 };
        let y = s.tape.adaptive_log_probs(&x, softmax, &bands);
        s.value("ln p", &y);
    })
}

const GROUP: GroupId = GroupId(0);

/// Three updates of a model of words alone whose input and output are one, with batches that fill their room in
/// different ways.
fn passes(device: &Device, numbers: Numbers) -> Result<Outcome> {
    let (bands, width) = (SMALL.bands(), SMALL.widths[0]);
    let mut builder = ParamsBuilder::default();
    let mut matrix = |name: &str, shape| builder.matrix(name.into(), shape, GROUP);
    let table = |band: usize| bands.range(band).len() + if band == 0 { SMALL.cutoffs.len() } else { 0 };
    let input: Vec<InputBand> = (0..bands.count())
        .map(|band| InputBand {
            table: matrix(TABLES[band], [table(band), SMALL.widths[band]]),
            projection: matrix(PROJECTIONS[band], [width, SMALL.widths[band]]),
        })
        .collect();
    let tail = |band: &InputBand| Tail {
        projection: band.projection,
        orientation: Orientation::Transposed,
        vocabulary: band.table,
    };
    let (head, tails): (ParamId, Vec<Tail>) = (input[0].table, input[1..].iter().map(tail).collect());
    let mut params = builder.finish(device);
    let names: Vec<(String, usize)> =
        params.named().map(|p| (p.name.to_owned(), p.shape.iter().product())).collect();
    for (i, (name, count)) in names.iter().enumerate() {
        let values = random(numbers, i as u32, *count).into_iter().map(|v| fit(numbers, 0.2 * v));
        params.set(name, &values.collect::<Vec<_>>())?;
    }
    let positions = sinusoids(device, 128, width);
    let (mut gradients, mut step) = (params.gradients(), StepNumbers::new(device));
    let (mut velocity, free) = (Velocity::new(&params, GROUP), GroupSet::of(&[GROUP]));
    let nag = Nag { momentum: 0.9, weight_decay: 0.01 };
    let (mut replays, mut outcome) = (Replays::default(), Outcome::new());
    let room = |count| BandedIds::with_room(device, &bands, 96, &vec![count; bands.count()]);
    let (mut ids, mut targets) = (room(80), room(96));
    let mut segments = Segments::with_room(device, 4, 96, 96);
    for pass in 0..3 {
        let lengths = [&[30, 11, 26][..], &[67], &[5, 1, 20]][pass as usize];
        let starts = starts(lengths);
        let count = starts[lengths.len()] as usize;
        let words = [ALL, ONE_WORD, WITHOUT_LAST][pass as usize];
        ids.load(&SMALL.words(ALL, pass)[..count]);
        targets.load(&SMALL.words(words, 10 + pass)[..count]);
        segments.load(&starts);
        let (rng, weight) = (Rng::new(7, 20 + pass), 1.0 / (30 + pass) as f32);
        step.begin();
        device.load_numbers(rng, weight, 1.0);
        gradients.clear();
        let (sums, written) = replays.run(device, 0, || {
            let mut tape = Tape::training(&params, &mut gradients, free, rng);
            let e = AdaptiveEmbedding { bands: &input, positions: &positions, scale: 8.0, dropout: 0.2 };
            let x = tape.adaptive_embed(e, &ids, &segments, None);
            let softmax = AdaptiveSoftmax { head, tails: &tails, dropout: 0.2 };
            let sums = tape.adaptive_loss(&x, softmax, &targets, weight);
            let updates = tape.backward();
            step.add(&sums);
            params.apply(updates);
            Ok((sums, gradients.written()))
        })?;
        gradients.set_written(&written);
        gradients.check_complete(free)?;
        step.norm(&params, &gradients, free, 1.0);
        let read = step.read()?.wait()?;
        let summed = [read.loss, read.nll, read.norm].map(|v| v as f32).to_vec();
        outcome.push(Quantity::value(format!("loss, nll and norm {pass}"), 1, summed));
        outcome.push(Quantity::value(format!("log-probabilities {pass}"), 1, sums.log_probs.to_host()));
        for (i, (name, _)) in names.iter().enumerate() {
            let gradient = gradients.get(&params, name)?.unwrap_or_default();
            let cols = SMALL.widths[i / 2];
            outcome.push(Quantity::gradient(&format!("{name} {pass}"), false, cols, gradient));
        }
        nag.step(&mut params, &gradients, &mut velocity, 0.1, &step);
    }
    Ok(outcome)
}
