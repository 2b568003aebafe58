//! Golden numbers of the language model from the PyTorch oracle (`tools/oracle/lm_golden.py`): log-probabilities of the
//! whole vocabulary, losses, every gradient of a G step, an F step with given draws and a joint step, running statistics,
//! and eight updates with NAG and clipping.

use mae_data::PackedBatch;
use mae_engine::optim::{Nag, StepNumbers, Velocity, sgd};
use mae_engine::{Gradients, GroupSet, Rng, Tape};
use mae_model::attention::Pass;
use mae_model::config::{Mixture, System};
use mae_model::lm::{LmBatch, Scorer};
use mae_model::{ExpertMode, LanguageModel, LmConfig, Model, groups};

use crate::golden::{Golden, assert_close, place};

/// Without a norm at the end features are large, and log-probabilities down to −90: five times the usual tolerance, and
/// more in bfloat16, where each such number is rounded by up to a quarter.
fn large() -> f64 {
    if place().value > 1e-2 { 30.0 } else { 5.0 }
}

fn config_of(golden: &Golden) -> LmConfig {
    let gated = golden.number("gated");
    let cutoffs = golden.metadata["cutoffs"].split(',').filter(|cutoff| !cutoff.is_empty());
    LmConfig {
        arch: "golden".into(),
        decoder_layers: golden.number("layers"),
        decoder_embed_dim: golden.number("width"),
        decoder_ffn_embed_dim: golden.number("inner"),
        decoder_attention_heads: golden.number("heads"),
        dropout: 0.0,
        attention_dropout: 0.0,
        activation_dropout: 0.0,
        adaptive_softmax_cutoff: cutoffs.map(|cutoff| cutoff.parse().unwrap()).collect(),
        adaptive_softmax_factor: golden.number("factor"),
        adaptive_softmax_dropout: 0.0,
        tie_adaptive_weights: golden.number("tie_weights"),
        tie_adaptive_proj: golden.number("tie_proj"),
        final_norm: golden.number("final_norm"),
        max_positions: golden.number("max_positions"),
        mixture: Mixture {
            system: if gated { System::MAE } else { System::BASE },
            dropped_heads: golden.number("dropped"),
            gate_hidden: golden.number("gate_hidden"),
            gate_dropout: 0.0,
            gate_window: golden.number("window"),
            ..Mixture::default()
        },
        ..LmConfig::arch("transformer_lm_tiny").unwrap()
    }
}

fn model_of(golden: &Golden) -> LanguageModel {
    let types = golden.number("vocab");
    let mut model = LanguageModel::zeroed(&config_of(golden), types, &place().device).unwrap();
    golden.fill(model.params_mut());
    model
}

fn batch_of(golden: &Golden, model: &LanguageModel) -> LmBatch {
    let batch = PackedBatch {
        prev: golden.ids("prev.ids"),
        tgt: golden.ids("tgt.ids"),
        tgt_starts: golden.ids("tgt.starts"),
        ..PackedBatch::default()
    };
    model.check_ids(&batch).unwrap();
    LmBatch::new(&place().device, model.bands(), &batch)
}

/// One training pass; returns the loss, summed over tokens.
fn step(
    model: &mut LanguageModel,
    gradients: &mut Gradients,
    batch: &LmBatch,
    mode: &ExpertMode,
    free: GroupSet,
) -> f64 {
    gradients.clear();
    let updates;
    let nll = {
        let mut tape = Tape::training(model.params(), gradients, free, Rng::new(1, 1));
        let mut pass = Pass { tape: &mut tape, mode, probe: None };
        let sums = model.loss(&mut pass, batch, 1.0 / batch.target.len() as f32);
        updates = tape.backward();
        sums.nll()
    };
    gradients.check_complete(free).unwrap();
    model.params_mut().apply(updates);
    nll
}

/// ln p of all words at every position.
fn log_probs(model: &LanguageModel, batch: &LmBatch) -> Vec<f32> {
    let mut tape = Tape::evaluation(model.params());
    let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
    let features = model.features(&mut pass, &batch.previous, &batch.rows);
    let logits = model.logits(&mut tape, &features);
    let types = logits.cols();
    let mut values = logits.to_host();
    for row in values.chunks_exact_mut(types) {
        let sum: f64 = row.iter().map(|&v| f64::from(v).exp()).sum();
        row.iter_mut().for_each(|v| *v -= sum.ln() as f32);
    }
    place().device.check().unwrap();
    values
}

fn check_log_probs_and_steps(name: &str) {
    let golden = Golden::load(name);
    let model = model_of(&golden);
    let (batch, gated) = (batch_of(&golden, &model), config_of(&golden).mixture.system.is_gated());
    let (got, want) = (log_probs(&model, &batch), golden.get("eval.logprobs"));
    assert_close(&format!("{name}: eval.logprobs"), &got, want, large() * place().value);
    // Those of the targets, which an evaluation reads.
    let mut tape = Tape::evaluation(model.params());
    let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
    let given = model.loss(&mut pass, &batch, 1.0).log_probs.to_host();
    let targets = golden.ids("tgt.ids").into_iter().enumerate();
    let want: Vec<f64> =
        targets.map(|(row, id)| want[row * golden.number::<usize>("vocab") + id as usize]).collect();
    assert_close(&format!("{name}: ln p of targets"), &given, &want, large() * place().value);

    let steps: &[(&str, ExpertMode, GroupSet)] = &[
        ("g", ExpertMode::Mix, groups::gates()),
        ("f", golden.draws("f.draws."), groups::all_but_gates()),
        ("joint", ExpertMode::Mix, groups::trained()),
    ];
    for (kind, mode, free) in steps.iter().filter(|(kind, _, _)| gated || *kind == "f") {
        let mut model = model_of(&golden);
        let mut gradients = model.params().gradients();
        let got = step(&mut model, &mut gradients, &batch, mode, *free);
        let want = golden.get(&format!("{kind}.nll"))[0];
        assert!(
            (got - want).abs() < large() * place().loss,
            "{name}: {kind}.nll is {got}, the oracle says {want}"
        );
        let params = model.params();
        for parameter in params.named().filter(|p| free.contains(p.group)) {
            let got = gradients.get(params, parameter.name).unwrap().unwrap();
            let key = format!("{kind}.grad.{}", parameter.name);
            golden.assert_gradient(name, &key, &got);
        }
        for parameter in params.named().filter(|p| p.group == groups::STATISTICS) {
            let key = format!("{kind}.stats.{}", parameter.name.replace(".gate.norm.", "."));
            assert_close(&key, &params.get(parameter.name).unwrap(), golden.get(&key), place().value);
        }
    }
}

fn check_updates(name: &str) {
    let golden = Golden::load(name);
    let gated = config_of(&golden).mixture.system.is_gated();
    let mut model = model_of(&golden);
    let batch = batch_of(&golden, &model);
    let mut gradients = model.params().gradients();
    let nag = Nag { momentum: golden.number("momentum"), weight_decay: golden.number("weight_decay") };
    let mut velocities =
        [groups::ATTENTION_OUTPUT, groups::REST].map(|group| Velocity::new(model.params(), group));
    let mut numbers = StepNumbers::new(&place().device);
    let tokens = batch.target.len() as f64;
    let close = |what: &str, update: usize, got: f64| {
        let want = golden.get(what)[update];
        let off = (got - want).abs();
        assert!(
            off < large() * place().mean_loss,
            "{name}: {what}[{update}] is {got}, the oracle says {want}"
        );
    };
    for (update, rate) in golden.metadata["rates"].split(',').enumerate() {
        if gated {
            let nll = step(&mut model, &mut gradients, &batch, &ExpertMode::Mix, groups::gates());
            close("train.g_losses", update, nll / tokens);
            sgd(model.params_mut(), &gradients, groups::GATE, 1.0, &numbers);
        }
        let mode = if gated { golden.draws(&format!("train.draws.{update}.")) } else { ExpertMode::Mix };
        let nll = step(&mut model, &mut gradients, &batch, &mode, groups::all_but_gates());
        close("train.f_losses", update, nll / tokens);
        numbers.norm(model.params(), &gradients, groups::all_but_gates(), golden.number("clip_norm"));
        close("train.norms", update, numbers.read().unwrap().wait().unwrap().norm);
        for velocity in &mut velocities {
            nag.step(model.params_mut(), &gradients, velocity, rate.parse().unwrap(), &numbers);
        }
    }
    let got = log_probs(&model, &batch);
    assert_close(
        &format!("{name}: log-probabilities after the updates"),
        &got,
        golden.get("train.end.eval.logprobs"),
        large() / 5.0 * place().trained,
    );
}

#[test]
fn base_agrees_with_the_oracle() {
    check_log_probs_and_steps("lm_base");
}

#[test]
fn mae7_agrees_with_the_oracle() {
    check_log_probs_and_steps("lm_mae7");
}

/// Weights and projections of the softmax its own, and a norm at the end.
#[test]
fn untied_mae6_agrees_with_the_oracle() {
    check_log_probs_and_steps("lm_mae6");
}

/// No bands.
#[test]
fn a_plain_vocabulary_agrees_with_the_oracle() {
    check_log_probs_and_steps("lm_plain");
}

#[test]
fn nag_updates_agree_with_the_oracle() {
    ["lm_base", "lm_mae7", "lm_mae6", "lm_plain"].into_iter().for_each(check_updates);
}

/// An evaluation with context scores the last tokens of each block, and gets what a pass over all of them gives. Three
/// times: on a GPU the second pass of a shape is captured, the third replayed.
#[test]
fn scores_of_the_last_tokens_are_those_of_the_whole_pass() {
    for name in ["lm_mae7", "lm_plain"] {
        let golden = Golden::load(name);
        let model = model_of(&golden);
        let starts = golden.ids("tgt.starts");
        let packed = PackedBatch {
            prev: golden.ids("prev.ids"),
            tgt: golden.ids("tgt.ids"),
            ids: (0..starts.len() as u32 - 1).collect(),
            tgt_starts: starts.clone(),
            ..PackedBatch::default()
        };
        for mode in [ExpertMode::Mix, ExpertMode::Argmax] {
            let mut tape = Tape::evaluation(model.params());
            let mut pass = Pass { tape: &mut tape, mode: &mode, probe: None };
            let all = model.loss(&mut pass, &batch_of(&golden, &model), 1.0).log_probs.to_host();
            let mut scorer = Scorer::new(&model, &mode, packed.tgt.len());
            for context in [0, 2, 1, 3] {
                let length = |b: usize| (starts[b + 1] - starts[b]) as usize;
                let contexts: Vec<usize> =
                    (0..packed.sentences()).map(|b| (context + b).min(length(b) - 1)).collect();
                let want: Vec<f64> = contexts
                    .iter()
                    .enumerate()
                    .flat_map(|(b, &context)| &all[starts[b] as usize + context..starts[b + 1] as usize])
                    .map(|&p| f64::from(p))
                    .collect();
                let got = scorer.log_probs(&packed, &contexts).unwrap();
                assert_eq!(got.len(), want.len());
                let what = format!("{name}, {mode:?}, context {context}");
                assert_close(&what, &got, &want, large() * place().value);
            }
        }
    }
}
