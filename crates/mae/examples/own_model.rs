//! MAE attention in a model of one's own: a small classifier of sequences, trained with G and F steps.
//!
//!     cargo run --release -p mae --example own_model
//!
//! A sequence is a question and some facts in random order: `?2  0=3 2=1 1=1 3=0` asks for the value of key 2, so its
//! class is 1. To answer, the question must attend to the right fact. The model is one layer: embeddings, attention with
//! a mixture of experts, residual sum and layer norm, the mean of each sequence, and a linear classifier.

use std::error::Error;

use mae::engine::ops::cross_entropy::{CrossEntropy, LossSums};
use mae::engine::ops::embed::{Embedding, Positions, sinusoids};
use mae::engine::ops::residual_norm::LayerNorm;
use mae::engine::optim::{Adam, Moments, StepNumbers, sgd};
use mae::engine::{Device, Gradients, GroupSet, Ids, ParamId, Params, ParamsBuilder, Rng, Segments, Stream};
use mae::engine::{Tape, Tensor, Var};
use mae::model::attention::Kind;
use mae::model::config::Mixture;
use mae::model::groups::{self, ATTENTION_OUTPUT, REST};
use mae::model::{AttentionConfig, ExpertMode, MixtureAttention, Pass, System, init};

const KEYS: usize = 4;
const VALUES: usize = 4;
const WIDTH: usize = 32;
const HEADS: usize = 4;
const UPDATES: u64 = 400;
const SEED: u64 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::cpu();
    let mut classifier = Classifier::new(&device)?;
    let mut gradients = classifier.params.gradients();
    let adam = Adam { beta1: 0.9, beta2: 0.98, epsilon: 1e-8, weight_decay: 0.0 };
    let mut moments = [ATTENTION_OUTPUT, REST].map(|group| Moments::new(&classifier.params, group));
    let numbers = StepNumbers::new(&device);
    for update in 1..=UPDATES {
        let batch = Batch::new(&device, 64, update as u32);
        // Every fifth update begins with a G step: the full mixture, SGD on the gates.
        if update.is_multiple_of(5) {
            classifier.step(&batch, &mut gradients, &ExpertMode::Mix, groups::gates(), 2 * update)?;
            sgd(&mut classifier.params, &gradients, groups::GATE, 1.0, &numbers);
        }
        // F step: one expert per sequence, drawn from the gates, and Adam on everything else.
        let loss = classifier.step(
            &batch,
            &mut gradients,
            &ExpertMode::Sample,
            groups::all_but_gates(),
            2 * update + 1,
        )?;
        for moments in &mut moments {
            adam.step(&mut classifier.params, &gradients, moments, 5e-3, update, &numbers);
        }
        if update.is_multiple_of(100) {
            println!("update {update}: loss {loss:.3} nats");
        }
    }
    let accuracy = classifier.accuracy(&Batch::new(&device, 1000, 0));
    println!("accuracy on new sequences: {:.1} % (chance: {:.1} %)", 100.0 * accuracy, 100.0 / VALUES as f64);
    if accuracy < 0.95 {
        return Err(format!("the classifier did not learn: accuracy {accuracy}").into());
    }
    Ok(())
}

struct Classifier {
    params: Params,
    attention: MixtureAttention,
    norm: LayerNorm,
    tokens: ParamId,
    classes: ParamId,
    positions: Tensor,
}

impl Classifier {
    fn new(device: &Device) -> Result<Self, Box<dyn Error>> {
        let mut params = ParamsBuilder::default();
        let mixture = Mixture { system: System::MAE, gate_hidden: 16, ..Mixture::default() };
        let config = AttentionConfig {
            kind: Kind::Encoder,
            width: WIDTH,
            heads: HEADS,
            head_dim: 0,
            dropout: 0.0,
            mixture: &mixture,
        };
        let attention = MixtureAttention::declare(&mut params, "attention", &config, device)?;
        let tokens = params.matrix("tokens.weight".into(), [KEYS + KEYS * VALUES, WIDTH], REST);
        let classes = params.matrix("classes.weight".into(), [VALUES, WIDTH], REST);
        let norm = LayerNorm {
            weight: params.vector("norm.weight".into(), WIDTH, REST),
            bias: params.vector("norm.bias".into(), WIDTH, REST),
        };
        let mut params = params.finish(device);
        init::initialise(&mut params, mixture.system, SEED)?;
        let positions = sinusoids(device, 1 + KEYS, WIDTH);
        Ok(Self { params, attention, norm, tokens, classes, positions })
    }

    /// One row per sequence.
    fn features(&self, pass: &mut Pass<'_, '_>, batch: &Batch) -> Var {
        let positions = Positions::Fixed(&self.positions);
        let embedding = Embedding { table: self.tokens, positions, scale: 1.0, dropout: 0.0 };
        let x = pass.tape.embed(embedding, &batch.tokens, &batch.rows, None);
        let attended = self.attention.forward(pass, &x, &batch.rows, None);
        let y = pass.tape.residual_norm(&x, &attended, 0.0, self.norm).normed;
        pass.tape.segment_mean(&y, &batch.rows)
    }

    /// A training pass: gradients of the groups `free`. Returns the mean loss.
    fn step(
        &mut self,
        batch: &Batch,
        gradients: &mut Gradients,
        mode: &ExpertMode,
        free: GroupSet,
        number: u64,
    ) -> Result<f64, Box<dyn Error>> {
        gradients.clear();
        let mut tape = Tape::training(&self.params, gradients, free, Rng::new(SEED, number as u32));
        let features = self.features(&mut Pass { tape: &mut tape, mode, probe: None }, batch);
        let weight = 1.0 / batch.classes.len() as f32;
        let (vocabulary, targets) = (self.classes, &batch.classes);
        let loss = CrossEntropy { vocabulary, bias: None, targets, smoothing: 0.0, weight };
        let sums: LossSums = tape.cross_entropy(&features, loss);
        let updates = tape.backward();
        gradients.check_complete(free)?;
        let loss = sums.nll() * f64::from(weight);
        self.params.apply(updates);
        Ok(loss)
    }

    /// Share of sequences whose class is right, with the full mixture.
    fn accuracy(&self, batch: &Batch) -> f64 {
        let mut tape = Tape::evaluation(&self.params);
        let pass = &mut Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
        let features = self.features(pass, batch);
        let logits = tape.logits(&features, self.classes, None).to_host();
        let best = |row: &[f32]| (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        let wanted = &batch.wanted;
        let right =
            logits.chunks_exact(VALUES).zip(wanted).filter(|(row, class)| best(row) == **class as usize);
        right.count() as f64 / wanted.len() as f64
    }
}

/// Sequences end to end, and their classes.
struct Batch {
    tokens: Ids,
    rows: Segments,
    classes: Ids,
    wanted: Vec<u32>,
}

impl Batch {
    /// Random sequences; `number` 0 is for evaluation, the others are for training.
    fn new(device: &Device, sequences: usize, number: u32) -> Self {
        let stream = Rng::new(SEED + 1, number).stream(0);
        let (mut tokens, mut starts, mut wanted) = (Vec::new(), vec![0], Vec::new());
        for sequence in 0..sequences as u32 {
            let mut numbers = Numbers { stream, row: sequence, next: 0 };
            let question = numbers.below(KEYS);
            let mut facts: Vec<usize> =
                (0..KEYS).map(|key| KEYS + key * VALUES + numbers.below(VALUES)).collect();
            wanted.push(((facts[question] - KEYS) % VALUES) as u32);
            for last in (1..KEYS).rev() {
                facts.swap(last, numbers.below(last + 1));
            }
            tokens.push(question as u32);
            tokens.extend(facts.iter().map(|&fact| fact as u32));
            starts.push(tokens.len() as u32);
        }
        Self {
            tokens: Ids::from_host(device, &tokens),
            rows: Segments::from_host(device, &starts),
            classes: Ids::from_host(device, &wanted),
            wanted,
        }
    }
}

/// The random numbers of one sequence.
struct Numbers {
    stream: Stream,
    row: u32,
    next: u32,
}

impl Numbers {
    /// A whole number below `count`.
    fn below(&mut self, count: usize) -> usize {
        self.next += 1;
        ((f64::from(self.stream.uniform(self.row, self.next)) * count as f64) as usize).min(count - 1)
    }
}
