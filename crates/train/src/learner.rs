//! One update. Algorithm 1 (G step): the full mixture, gradient to the gates. Algorithm 2 (F step): one drawn expert
//! per row, gradient to everything else.

mod report;
mod share;
mod trial;

use std::collections::HashMap;

use mae_data::PackedBatch;
use mae_engine::collective::{Round, StepSum, Team};
use mae_engine::optim::{self, StepNumbers};
use mae_engine::params::{Slice, Updates};
use mae_engine::{Gradients, GroupSet, HostCopy, Params, Replays, Rng, Tape, Written};
use mae_model::attention::Pass;
use mae_model::groups;
use mae_model::system::{self, Training};
use mae_model::{Config, Model, Translator};
use serde::{Deserialize, Serialize};

use self::report::PendingStep;
pub use self::report::{PendingUpdate, StepReport, UpdateReport};
pub use self::share::Share;
use crate::config::{GateRate, GateTraining, TrainConfig};
use crate::gate_optimizer::GateOptimizer;
use crate::optimizer::Optimizer;
use crate::plan::{StepKind, Steps};
use crate::{Error, Result, schedule};

/// A model being trained: parameters, gradients, the optimiser and the counters that everything random depends on.
pub struct Learner<M: Model = Translator> {
    /// The model.
    pub model: M,
    config: TrainConfig,
    gradients: Gradients,
    optimizer: Optimizer,
    /// Optimiser of gates in joint steps.
    joint_gates: system::GateOptimizer,
    /// That of G steps, and of joint steps whose gates have one of their own.
    gate_optimizer: GateOptimizer,
    numbers: StepNumbers,
    counters: Counters,
    /// A batch in device memory for each shape, and on a GPU the captured passes that read it.
    feeds: HashMap<M::Shape, M::Batch>,
    passes: Replays<PassKind<M::Shape>, Written>,
    /// Processes that train this model together.
    team: Team,
    sum: StepSum,
}

/// Key by which captured passes are found again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PassKind<S> {
    step: StepKind,
    first: First,
    /// Whether it hands slices of the gradients over on its walk back.
    sliced: bool,
    shape: S,
}

/// Whether a batch is the first that a pass writes to the gradients; others add to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum First {
    Yes,
    No,
}

/// Counters on which the randomness and the schedule of an update depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Finished updates.
    pub updates: u64,
    /// Finished updates of the gates.
    pub gate_updates: u64,
    /// Forward passes in training so far: each has random numbers of its own.
    pub passes: u32,
    /// Updates after which the schedule of learning rates restarted.
    #[serde(default)]
    pub schedule_start: u64,
}

/// Stream of the random signs of gate gradients, which no op has.
const SIGNS: u32 = u32::MAX;

/// Optimiser of the gates of a model in joint steps.
fn joint_gates<M: Model>(model: &M) -> system::GateOptimizer {
    match model.config().mixture().system.training() {
        Training::Joint(optimizer) => optimizer,
        Training::Rest | Training::Alternating => system::GateOptimizer::Own,
    }
}

impl<M: Model> Learner<M> {
    /// A model before its first update.
    pub fn new(model: M, config: &TrainConfig) -> Self {
        let params = model.params();
        let gradients = params.gradients();
        let joint_gates = joint_gates(&model);
        let optimizer = Optimizer::new(config, params, joint_gates);
        let gate_optimizer = GateOptimizer::new(config, params);
        let numbers = StepNumbers::new(params.device());
        Self {
            model,
            config: config.clone(),
            gradients,
            optimizer,
            joint_gates,
            gate_optimizer,
            numbers,
            counters: Counters::default(),
            feeds: HashMap::new(),
            passes: Replays::default(),
            team: Team::alone(),
            sum: StepSum::default(),
        }
    }

    /// Lets other processes take a part of every update.
    #[must_use]
    pub fn among(mut self, team: Team) -> Self {
        self.team = team;
        // Captured passes belong to the way of the sums.
        (self.passes, self.sum) = (Replays::default(), StepSum::default());
        self
    }

    /// Values of each slice of the gradients of the last step, and milliseconds from when it was handed over to the end of
    /// the pass; nothing if slices were not handed over early. Waits for the device.
    pub fn slice_times(&self) -> Vec<(usize, f64)> {
        self.sum.slice_times()
    }

    /// The processes that train this model together.
    pub fn team(&self) -> &Team {
        &self.team
    }

    /// Gives parameters and the memory of the optimisers of rank 0 to all; of that memory each rank then keeps its slice if
    /// `zero` says so.
    pub fn share(&mut self) -> Result<()> {
        self.give_to_all()?;
        if self.config.zero > 0 {
            self.optimizer.shard(self.model.params(), &self.team);
        }
        Ok(())
    }

    fn give_to_all(&mut self) -> Result<()> {
        self.team.share_params(self.model.params_mut())?;
        let mut shared = HashMap::new();
        for (name, copy) in self.memory()? {
            let mut values = copy.values()?.to_vec();
            self.team.host().broadcast(&mut values)?;
            shared.insert(name, values);
        }
        if self.team.place().is_first() {
            return Ok(());
        }
        let unknown = |name: String| mae_engine::Error::UnknownParameter(name).into();
        self.remember(|_, name| shared.get(name).cloned().ok_or_else(|| unknown(name.to_owned())), unknown)
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Takes counters from a checkpoint.
    pub fn set_counters(&mut self, counters: Counters) {
        self.counters = counters;
    }

    /// Number of parameters that are trained.
    pub fn trained(&self) -> usize {
        self.model.params().count(self.config.trained())
    }

    /// Returns true if ranks share the memory of the optimiser: then all of them must call [`Self::memory`].
    pub fn is_sharded(&self) -> bool {
        self.optimizer.is_sharded()
    }

    /// Returns the memory of the optimisers by name, without waiting for the device. They remember nothing of a frozen
    /// group.
    pub fn memory(&self) -> Result<Vec<(String, HostCopy)>> {
        let mut memory = self.optimizer.memory(self.model.params())?;
        memory.extend(self.gate_optimizer.memory()?);
        Ok(memory)
    }

    /// Takes back what [`Self::memory`] gave. `read` finds it by name, for these parameters; `fault` makes an error of the
    /// name of a part that has the wrong size.
    pub fn remember(
        &mut self,
        read: impl Fn(&Params, &str) -> Result<Vec<f32>>,
        fault: impl Fn(String) -> Error,
    ) -> Result<()> {
        let params = self.model.params();
        let read = |name: &str| read(params, name);
        self.optimizer.remember(read, &fault)?;
        self.gate_optimizer.remember(read, fault)
    }

    /// Asks for one update on the batches of all ranks together, their loss divided by all their target tokens. On a GPU
    /// this does not wait for the device.
    pub fn update(&mut self, batches: &Share, steps: Steps, epoch: u64) -> Result<PendingUpdate> {
        let before = self.counters;
        let gate = match steps {
            Steps::GThenF => Some(self.gate_step(batches)?),
            Steps::F | Steps::G | Steps::Joint | Steps::Held => None,
        };
        let (main, rate) = match steps {
            Steps::G => (self.gate_step(batches)?, self.gate_rate()),
            Steps::F | Steps::GThenF => self.descend(batches, StepKind::F)?,
            Steps::Joint => self.descend(batches, StepKind::Joint)?,
            Steps::Held => self.descend(batches, StepKind::Held)?,
        };
        self.counters.updates += 1;
        Ok(PendingUpdate {
            gate,
            main,
            number: self.counters.updates,
            gate_updates: self.counters.gate_updates,
            epoch,
            rate,
            sentences: batches.sentences,
            source_tokens: batches.source_tokens,
            batches: batches.batches as u64,
            samples: M::SAMPLES,
            ids: batches.ids.clone(),
            before,
        })
    }

    /// An F step or a joint step, and its learning rate.
    fn descend(&mut self, batches: &Share, kind: StepKind) -> Result<(PendingStep, f64)> {
        let limit = self.config.clip_norm;
        let main = match (kind, self.joint_gates) {
            (StepKind::Joint, system::GateOptimizer::Own) => {
                // Gates with an optimiser of their own are never clipped: the limit is for the norm of the others.
                let main = self.pass(batches, kind, 0.0)?;
                self.descend_gates();
                let clipped = groups::all_but_gates().and(self.config.trained());
                if limit > 0.0 && !clipped.is_empty() {
                    self.numbers.clip(self.model.params(), &self.gradients, clipped, limit);
                }
                main
            }
            (StepKind::Joint, system::GateOptimizer::Shared) => {
                self.counters.gate_updates += 1;
                self.pass(batches, kind, limit)?
            }
            (StepKind::F | StepKind::G | StepKind::Held, _) => self.pass(batches, kind, limit)?,
        };
        let (rate, number) = (self.rate(), self.counters.updates + 1);
        let Self { model, gradients, optimizer, numbers, .. } = self;
        optimizer.step(model.params_mut(), gradients, rate as f32, number, numbers)?;
        Ok((main, rate))
    }

    /// The schedule's rate of the next update.
    fn rate(&self) -> f64 {
        let Counters { updates, schedule_start, .. } = self.counters;
        schedule::rate(&self.config, updates - schedule_start)
    }

    /// The gates' rate of the next update.
    fn gate_rate(&self) -> f64 {
        let rate = f64::from(self.config.gate_lr);
        match self.config.gate_rate {
            GateRate::Constant => rate,
            GateRate::Schedule => rate * self.rate(),
        }
    }

    /// Asks for a G step alone: for benchmarks.
    pub fn gate_update(&mut self, batches: &Share) -> Result<()> {
        self.gate_step(batches).map(|_| ())
    }

    /// A G step: the gates take one step of their optimiser on the mean loss of the full mixture.
    fn gate_step(&mut self, batches: &Share) -> Result<PendingStep> {
        let step = self.pass(batches, StepKind::G, 0.0)?;
        self.descend_gates();
        Ok(step)
    }

    fn descend_gates(&mut self) {
        let (rate, number) = (self.gate_rate() as f32, self.counters.gate_updates + 1);
        let Self { model, gradients, gate_optimizer, numbers, config, .. } = self;
        if config.gate_training == GateTraining::RandomSigns {
            let signs = Rng::new(config.seed, number as u32).stream(SIGNS);
            optim::random_signs(model.params(), gradients, groups::GATE, signs);
        }
        gate_optimizer.step(model.params_mut(), gradients, rate, number, numbers);
        self.counters.gate_updates = number;
    }

    /// Forward and backward over all batches; leaves the gradient of the mean loss of the free parameters, and its
    /// norm. Random numbers are those of a batch's place among the batches of all ranks.
    fn pass(&mut self, batches: &Share, step: StepKind, clip: f64) -> Result<PendingStep> {
        self.numbers.begin();
        if self.model.params().device().is_gpu() {
            self.passes_on_gpu(batches, step)?;
        } else {
            self.passes_on_cpu(batches, step)?;
        }
        self.counters.passes = self.counters.passes.wrapping_add(batches.batches as u32);
        let params = self.model.params();
        self.numbers.norm(params, &self.gradients, self.free(step), clip);
        params.device().check()?;
        Ok(PendingStep { kind: step, reading: self.numbers.read()?, tokens: batches.target_tokens })
    }

    /// The gradients of all batches, each computed by itself, are added up in the order of the batches, whichever ranks
    /// have computed them.
    fn passes_on_cpu(&mut self, batches: &Share, step: StepKind) -> Result<()> {
        let (size, free) = (self.team.place().size, self.free(step));
        let is_single = batches.batches == 1 && size == 1;
        self.sum.begin(&self.team, self.model.params(), free)?;
        let rounds = batches.batches.div_ceil(size);
        for round in 0..rounds {
            let present = (batches.batches - round * size).min(size);
            self.sum.begin_round(Round { present, is_first: round == 0, is_last: round + 1 == rounds });
            let updates = match batches.own.get(round) {
                Some(_) => self.batch_pass(batches, round, step, First::Yes)?,
                None => Updates::default(),
            };
            let Self { model, gradients, numbers, sum, team, .. } = self;
            if is_single {
                model.params_mut().apply(updates);
                continue;
            }
            sum.add(team, model.params(), (gradients, free), numbers, updates)?;
        }
        if !is_single {
            let Self { model, gradients, numbers, sum, team, .. } = self;
            sum.finish(team, model.params_mut(), (gradients, free), numbers)?;
        }
        Ok(())
    }

    /// The gradients of the batches of this rank are added up in place, then those of all ranks.
    fn passes_on_gpu(&mut self, batches: &Share, step: StepKind) -> Result<()> {
        let (free, size) = (self.free(step), self.team.place().size);
        self.sum.begin_on_gpu(&self.team, self.model.params(), (free, groups::STATISTICS))?;
        for round in 0..batches.own.len() {
            let first = if round == 0 { First::Yes } else { First::No };
            self.batch_pass(batches, round, step, first)?;
        }
        if self.team.sums() {
            let Self { model, gradients, numbers, sum, team, .. } = self;
            let counts = [batches.own.len(), batches.batches.div_ceil(size)];
            let (params, statistics) = (model.params_mut(), (groups::STATISTICS, counts));
            sum.sum_on_gpu(team, params, (gradients, free), numbers, statistics)?;
        }
        Ok(())
    }

    /// Parameter groups that a step trains.
    fn free(&self, step: StepKind) -> GroupSet {
        step.groups().and(self.config.trained())
    }

    /// Forward and backward over the batch of this rank in a round.
    fn batch_pass(&mut self, batches: &Share, round: usize, step: StepKind, first: First) -> Result<Updates> {
        let (place, batch) = (self.team.place(), &batches.own[round]);
        self.model.check_ids(batch)?;
        let number = self.counters.passes.wrapping_add((round * place.size + place.rank) as u32);
        let rng = Rng::new(self.config.seed, number);
        let slices = self.sum.slices_of_pass(&self.team, round + 1 == batches.own.len());
        self.one_pass(batch, (step, first), (rng, 1.0 / batches.target_tokens as f32), &slices)
    }

    /// Forward and backward over one batch, handing over these slices of the gradients. On a GPU, a pass of a kind that was
    /// seen before is replayed. Returns the moves of running statistics, which a GPU has made already.
    fn one_pass(
        &mut self,
        batch: &PackedBatch,
        (step, first): (StepKind, First),
        (rng, weight): (Rng, f32),
        slices: &[Slice],
    ) -> Result<Updates> {
        let free = self.free(step);
        let Self { model, config, gradients, numbers, feeds, passes, counters, sum, .. } = self;
        let device = model.params().device().clone();
        let shape = model.shape(batch, config.max_tokens as usize);
        let feed = feeds.entry(shape.clone()).or_insert_with(|| model.room(&shape));
        M::load(feed, batch);
        let own_losses = schedule::gate_loss(config, counters.updates);
        device.load_numbers(rng, weight, own_losses);
        if first == First::Yes {
            gradients.clear();
        }
        let mut moves = Updates::default();
        let written =
            passes.run(&device, PassKind { step, first, sliced: !slices.is_empty(), shape }, || {
                let mut tape = Tape::training(model.params(), gradients, free, rng);
                tape.scale_own_losses(own_losses);
                let mut pass = Pass { tape: &mut tape, mode: &step.mode(), probe: None };
                let sums = model.loss(&mut pass, feed, config.label_smoothing, weight);
                let updates =
                    tape.backward_in_slices(slices, &mut |gradients, number| sum.complete(gradients, number));
                numbers.add(&sums);
                if device.is_gpu() {
                    model.params_mut().apply(updates);
                } else {
                    moves = updates;
                }
                Ok(gradients.written())
            })?;
        gradients.set_written(&written);
        gradients.check_complete(free)?;
        Ok(moves)
    }
}
