//! What must hold of any model, shown on tiny random ones: the paper's parameter counts, identities between systems,
//! independence of packing, and which gradients a step touches.

use std::collections::BTreeMap;

use mae_data::{EOS, PackedBatch};
use mae_engine::{Device, Gradients, GroupSet, Ids, Rng, Tape};
use mae_model::attention::{Pass, Probe};
use mae_model::config::{
    CrossGate, DecoderGate, GateReads, Mixture, NormOrder, SamplingUnit, Sharing, System,
};
use mae_model::{ExpertMode, Model, ModelConfig, Translator, groups};

const TYPES: [usize; 2] = [19, 17];

fn tiny(system: System) -> ModelConfig {
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_layers, config.decoder_layers) = (2, 2);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (12, 14);
    (config.encoder_attention_heads, config.max_positions, config.dropout) = (3, 40, 0.0);
    config.mixture = Mixture { system, gate_hidden: 5, gate_dropout: 0.0, ..Mixture::default() };
    config
}

/// The same with gates that read each position by itself.
fn by_position(system: System) -> ModelConfig {
    let mut config = tiny(system);
    config.mixture.gate_input = GateReads::Position;
    config
}

/// Gives sigmoid gates, which start by weighing every head 1, opinions of their own.
fn open_gates(model: &mut Translator) {
    if model.config().mixture.system == System::SIGMOID {
        // A seed that leaves no ReLU of these models close to its corner, where differences would tell nothing.
        let draws = Rng::new(18, 0).stream(0);
        let stir = |values: &mut [f32]| {
            values.iter_mut().enumerate().for_each(|(i, value)| *value = 0.5 * draws.normal(i as u32, 0));
        };
        change(model, "gate.proj.weight", stir);
        change(model, "gate.proj.bias", stir);
    }
    if model.config().mixture.system == System::L0 {
        // log a of 0.2: gates between closed and open, also in evaluation.
        change(model, "gate.log_a.bias", |values| values.fill(-2.3));
    }
}

fn new(config: &ModelConfig, seed: u64) -> Translator {
    Translator::new(config, TYPES, &Device::cpu(), seed).unwrap()
}

/// Sets each parameter whose name ends in `suffix` to what `change` makes of it.
fn change(model: &mut Translator, suffix: &str, change: impl Fn(&mut [f32])) {
    let all = model.params().named().map(|p| p.name.to_owned());
    let names: Vec<String> = all.filter(|name| name.ends_with(suffix)).collect();
    assert!(!names.is_empty(), "no parameter ends in {suffix}");
    for name in names {
        let mut values = model.params().get(&name).unwrap();
        change(&mut values);
        model.params_mut().set(&name, &values).unwrap();
    }
}

/// Pairs of random sentences with these (source, target) lengths, end marks counted; a pair is the same wherever it
/// stands.
fn batch(lengths: &[(usize, usize)]) -> PackedBatch {
    let mut batch = PackedBatch { src_starts: vec![0], tgt_starts: vec![0], ..PackedBatch::default() };
    for &(source, target) in lengths {
        let draws = Rng::new((100 * source + target) as u64, 0).stream(0);
        let word = |side: usize, i: usize| {
            4 + (draws.uniform(side as u32, i as u32) * (TYPES[side] - 4) as f32) as u32
        };
        batch.src.extend((1..source).map(|i| word(0, i)).chain([EOS]));
        batch.prev.extend([EOS].into_iter().chain((1..target).map(|i| word(1, i))));
        batch.tgt.extend((1..target).map(|i| word(1, i)).chain([EOS]));
        batch.src_starts.push(batch.src.len() as u32);
        batch.tgt_starts.push(batch.tgt.len() as u32);
        batch.ids.push(batch.ids.len() as u32);
    }
    batch
}

const LENGTHS: [(usize, usize); 4] = [(4, 6), (1, 2), (9, 3), (3, 8)];

fn logits_on(
    model: &Translator,
    batch: &PackedBatch,
    mode: &ExpertMode,
    tape: &mut Tape<'_>,
) -> Vec<Vec<f32>> {
    let on_device = model.upload(batch);
    let mut pass = Pass { tape: &mut *tape, mode, probe: None };
    let features = model.features(&mut pass, &on_device);
    let values = model.logits(tape, &features).to_host();
    let row = |row: u32| row as usize * TYPES[1];
    batch.tgt_starts.windows(2).map(|w| values[row(w[0])..row(w[1])].to_vec()).collect()
}

/// Logits of each sentence, in evaluation.
fn logits(model: &Translator, batch: &PackedBatch, mode: &ExpertMode) -> Vec<Vec<f32>> {
    logits_on(model, batch, mode, &mut Tape::evaluation(model.params()))
}

fn differ_by(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

fn assert_close(what: &str, a: &[Vec<f32>], b: &[Vec<f32>], tolerance: f32) {
    for (sentence, (a, b)) in a.iter().zip(b).enumerate() {
        let by = differ_by(a, b);
        assert!(by <= tolerance, "{what}: sentence {sentence} differs by {by:e}");
    }
}

/// One training pass that adds to `gradients`; gives the smoothed loss.
fn pass(
    model: &Translator,
    gradients: &mut Gradients,
    lengths: &[(usize, usize)],
    mode: &ExpertMode,
    free: GroupSet,
) -> f64 {
    let on_device = model.upload(&batch(lengths));
    let mut tape = Tape::training(model.params(), gradients, free, Rng::new(1, 1));
    let sums = model.loss(&mut Pass { tape: &mut tape, mode, probe: None }, &on_device, 0.1, 0.05);
    tape.backward();
    sums.smoothed()
}

#[test]
fn parameter_counts_are_the_papers() {
    let build = |arch: &str, system, dropped, types: [usize; 2]| {
        let mut config = ModelConfig::arch(arch).unwrap();
        config.mixture = Mixture { system, dropped_heads: dropped, ..Mixture::default() };
        config.share_embeddings = if types[0] == types[1] { Sharing::All } else { Sharing::Decoder };
        Translator::zeroed(&config, types, &Device::cpu()).unwrap()
    };
    let (wmt, iwslt) = ("transformer_wmt_en_de", "transformer_iwslt_de_en");
    assert_eq!(build(wmt, System::BASE, 1, [32_768; 2]).size(), 60_915_712);
    assert_eq!(build(wmt, System::UNIFORM, 1, [32_768; 2]).size(), 60_915_712);
    assert_eq!(build(wmt, System::MAE, 2, [32_768; 2]).size(), 63_427_576);
    assert_eq!(build(iwslt, System::BASE, 1, [8_848, 6_632]).size(), 39_469_056);
    assert_eq!(build(iwslt, System::MAE, 1, [8_848, 6_632]).size(), 41_888_400);
    let mae = build(wmt, System::MAE, 1, [32_768; 2]);
    assert_eq!(mae.size(), 63_335_056);
    assert_eq!(mae.params().count(groups::gates()), 2_419_344);
    let head = GroupSet::of(&[groups::GATE, groups::ATTENTION_OUTPUT]);
    assert_eq!(mae.params().count(head), 7_147_152);
}

#[test]
fn uniform_gates_are_plain_attention() {
    for norm in [NormOrder::Post, NormOrder::Pre] {
        for dropped in [1, 2] {
            let with = |system| {
                let mut config = ModelConfig { norm, ..tiny(system) };
                config.mixture.dropped_heads = dropped;
                new(&config, 1)
            };
            let (base, mut mae) = (with(System::BASE), with(System::MAE));
            assert!(
                differ_by(
                    &logits(&base, &batch(&LENGTHS), &ExpertMode::Mix)[0],
                    &logits(&mae, &batch(&LENGTHS), &ExpertMode::Mix)[0]
                ) > 1e-3,
                "gates that are not uniform make a difference"
            );
            change(&mut mae, "gate.fc2.weight", |values| values.fill(0.0));
            change(&mut mae, "gate.fc2.bias", |values| values.fill(0.0));
            let plain = logits(&base, &batch(&LENGTHS), &ExpertMode::Mix);
            assert_close("mae", &logits(&mae, &batch(&LENGTHS), &ExpertMode::Mix), &plain, 1e-5);
            let uniform = with(System::UNIFORM);
            assert_close("uniform", &logits(&uniform, &batch(&LENGTHS), &ExpertMode::Mix), &plain, 1e-5);
        }
    }
}

/// Expert e as a model of its own: BASE whose output projections do not read the heads left out, and the others scaled.
#[test]
fn one_expert_is_a_model_without_its_heads() {
    for dropped in [1, 2] {
        let mut config = tiny(System::MAE);
        config.mixture.dropped_heads = dropped;
        let (width, heads) = (config.encoder_embed_dim, config.encoder_attention_heads);
        for (expert, left_out) in config.experts().unwrap().left_out().into_iter().enumerate() {
            let mut by_hand = new(&tiny(System::BASE), 2);
            change(&mut by_hand, "out_proj.weight", |values| {
                for (i, value) in values.iter_mut().enumerate() {
                    let head = i % width / (width / heads);
                    let kept = heads as f32 / (heads - dropped) as f32;
                    *value *= if left_out.contains(&head) { 0.0 } else { kept };
                }
            });
            let want = logits(&by_hand, &batch(&LENGTHS), &ExpertMode::Mix);
            let mut mae = new(&config, 2);
            let fixed = ExpertMode::Fixed(expert as u32);
            assert_close("fixed", &logits(&mae, &batch(&LENGTHS), &fixed), &want, 1e-5);
            // The same by a gate that is sure.
            change(&mut mae, "gate.fc2.weight", |values| values.fill(0.0));
            change(&mut mae, "gate.fc2.bias", |values| {
                values.fill(0.0);
                values[expert] = 100.0;
            });
            assert_close("one-hot gate", &logits(&mae, &batch(&LENGTHS), &ExpertMode::Mix), &want, 1e-5);
            assert_close("argmax", &logits(&mae, &batch(&LENGTHS), &ExpertMode::Argmax), &want, 1e-5);
        }
    }
}

/// Sigmoid gates start where plain attention is, whatever they read, and leave it when they learn.
#[test]
fn sigmoid_gates_start_as_base() {
    let base = logits(&new(&tiny(System::BASE), 1), &batch(&LENGTHS), &ExpertMode::Mix);
    for config in [tiny(System::SIGMOID), by_position(System::SIGMOID)] {
        let mut model = new(&config, 1);
        // 6 attentions, a weight and a bias for each of 3 heads.
        assert_eq!(model.size(), new(&tiny(System::BASE), 1).size() + 6 * 3 * (12 + 1));
        assert_close("at the start", &logits(&model, &batch(&LENGTHS), &ExpertMode::Mix), &base, 1e-6);
        open_gates(&mut model);
        let opened = logits(&model, &batch(&LENGTHS), &ExpertMode::Mix);
        assert!(differ_by(&opened[0], &base[0]) > 1e-2);
    }
}

/// L0 gates start where plain attention is, close heads whose log a is low, and draw in training.
#[test]
fn l0_gates_start_as_base_and_close_heads() {
    let base = logits(&new(&tiny(System::BASE), 1), &batch(&LENGTHS), &ExpertMode::Mix);
    let mut model = new(&tiny(System::L0), 1);
    // 6 attentions, a number for each of 3 heads.
    assert_eq!(model.size(), new(&tiny(System::BASE), 1).size() + 6 * 3);
    assert_eq!(logits(&model, &batch(&LENGTHS), &ExpertMode::Mix), base, "the same bits at the start");
    let mut gradients = model.params().gradients();
    let losses: Vec<f64> =
        (0..2).map(|_| pass(&model, &mut gradients, &LENGTHS, &ExpertMode::Mix, groups::trained())).collect();
    assert_eq!(losses[0], losses[1], "draws are a function of the pass");
    // Without the second head: as if its output were 0.
    change(&mut model, "gate.log_a.bias", |values| values[1] = -6.0);
    let closed = logits(&model, &batch(&LENGTHS), &ExpertMode::Mix);
    change(&mut model, "gate.log_a.bias", |values| values[1] = 0.0);
    change(&mut model, "out_proj.weight", |values| {
        values.chunks_exact_mut(12).for_each(|row| row[4..8].fill(0.0));
    });
    assert_close("closed", &closed, &logits(&model, &batch(&LENGTHS), &ExpertMode::Mix), 1e-6);
    assert!(differ_by(&closed[0], &base[0]) > 1e-3);
}

/// Each row of MoH uses the shared heads and its own choice of the others; with all heads active and equal logits it is
/// plain attention.
#[test]
fn moh_uses_the_heads_that_its_keys_say() {
    for (shared, active, want) in [(1, 2, 2), (1, 3, 3), (0, 0, 3)] {
        let mut config = by_position(System::MOH);
        (config.mixture.shared_heads, config.mixture.active_heads) = (shared, active);
        let model = new(&config, 1);
        // 6 attentions, a row for each of 3 heads and two more.
        assert_eq!(model.size(), new(&tiny(System::BASE), 1).size() + 6 * 5 * 12);
        let mut tape = Tape::evaluation(model.params());
        let mut probe = Probe::default();
        let batch = model.upload(&batch(&LENGTHS));
        model
            .features(&mut Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: Some(&mut probe) }, &batch);
        assert_eq!(probe.gates.len(), 6);
        for row in probe.gates.iter().flat_map(|gate| gate.gates.to_host()).collect::<Vec<_>>().chunks(3) {
            assert_eq!(row.iter().filter(|w| **w > 0.0).count(), want, "{row:?}");
            assert!((row.iter().sum::<f32>() - 2.0).abs() < 2.0);
        }
    }
    let mut config = by_position(System::MOH);
    (config.mixture.shared_heads, config.mixture.active_heads) = (1, 3);
    let mut model = new(&config, 1);
    for part in ["shared", "routed", "between"] {
        change(&mut model, &format!("gate.{part}.weight"), |values| values.fill(0.0));
    }
    let base = logits(&new(&tiny(System::BASE), 1), &batch(&LENGTHS), &ExpertMode::Mix);
    assert_close("equal logits", &logits(&model, &batch(&LENGTHS), &ExpertMode::Mix), &base, 1e-6);
    for (shared, active) in [(3, 3), (2, 2), (1, 4), (2, 1)] {
        let mut config = tiny(System::MOH);
        (config.mixture.shared_heads, config.mixture.active_heads) = (shared, active);
        let error = Translator::new(&config, TYPES, &Device::cpu(), 1).err().unwrap().to_string();
        assert!(error.contains("shared_heads") && error.contains("≤ 3"), "{error}");
    }
}

#[test]
fn packing_order_changes_nothing() {
    let mut configs = vec![tiny(System::BASE), tiny(System::UNIFORM), tiny(System::MAE)];
    configs.push(ModelConfig {
        norm: NormOrder::Pre,
        share_embeddings: Sharing::None,
        ..tiny(System::NOBCD)
    });
    let mut other_gates = tiny(System::MAE);
    other_gates.mixture.decoder_gate = DecoderGate::Whole;
    other_gates.mixture.cross_gate = CrossGate::Source;
    configs.push(other_gates);
    configs.extend([tiny(System::SIGMOID), by_position(System::SIGMOID), by_position(System::MAE)]);
    configs.extend([tiny(System::MOH), by_position(System::MOH), tiny(System::L0)]);
    for config in configs {
        let mut model = new(&config, 3);
        open_gates(&mut model);
        let together = logits(&model, &batch(&LENGTHS), &ExpertMode::Mix);
        let order = [2, 0, 3, 1];
        let permuted = logits(&model, &batch(&order.map(|i| LENGTHS[i])), &ExpertMode::Mix);
        assert_close("permuted", &permuted, &order.map(|i| together[i].clone()), 1e-5);
        for (i, &pair) in LENGTHS.iter().enumerate() {
            let alone = logits(&model, &batch(&[pair]), &ExpertMode::Mix);
            assert_close("alone", &alone, &together[i..=i], 1e-5);
        }
    }
}

#[test]
fn gradients_of_two_halves_add_up_to_the_whole() {
    let model = new(&tiny(System::BASE), 4);
    let (mut whole, mut halves) = (model.params().gradients(), model.params().gradients());
    let mode = ExpertMode::Mix;
    let loss = pass(&model, &mut whole, &LENGTHS, &mode, groups::trained());
    let parts: f64 =
        LENGTHS.chunks(2).map(|half| pass(&model, &mut halves, half, &mode, groups::trained())).sum();
    assert!((loss - parts).abs() < 1e-4, "{loss} {parts}");
    for parameter in model.params().named() {
        let get = |gradients: &Gradients| gradients.get(model.params(), parameter.name).unwrap().unwrap();
        let by = differ_by(&get(&whole), &get(&halves));
        assert!(by < 1e-5, "{}: gradients differ by {by:e}", parameter.name);
    }
}

/// Slices of gradients leave during the walk back, in order and once each; the engine panics if anything is added to one
/// that has left.
#[test]
fn gradients_leave_in_slices() {
    for system in [System::BASE, System::MAE, System::SIGMOID, System::MOH, System::L0] {
        for config in [tiny(system), ModelConfig { norm: NormOrder::Pre, ..by_position(system) }] {
            let model = new(&config, 4);
            let free = groups::trained();
            let (mut whole, mut gradients) = (model.params().gradients(), model.params().gradients());
            pass(&model, &mut whole, &LENGTHS, &ExpertMode::Mix, free);
            let (slices, on_device) = (model.params().slices(free, 1), model.upload(&batch(&LENGTHS)));
            let mut tape = Tape::training(model.params(), &mut gradients, free, Rng::new(1, 1));
            let mode = ExpertMode::Mix;
            model.loss(&mut Pass { tape: &mut tape, mode: &mode, probe: None }, &on_device, 0.1, 0.05);
            let (mut seen, mut early) = (0, 0);
            tape.backward_in_slices(&slices, &mut |gradients, number| {
                assert_eq!(number, seen);
                seen += 1;
                // The last gradient of a pass is that of the source embeddings.
                let last = gradients.get(model.params(), "encoder.embed_tokens.weight").unwrap();
                early += usize::from(last.is_none());
            });
            assert_eq!(seen, slices.len());
            assert!(2 * early > seen, "{system:?}: {early} of {seen} slices leave before the end");
            for parameter in model.params().named().filter(|p| free.contains(p.group)) {
                let get = |gradients: &Gradients| gradients.get(model.params(), parameter.name).unwrap();
                assert_eq!(get(&whole), get(&gradients), "{}", parameter.name);
            }
        }
    }
}

#[test]
fn a_step_touches_its_own_gradients_only() {
    let model = new(&tiny(System::MAE), 5);
    let steps = [(groups::gates(), ExpertMode::Mix), (groups::all_but_gates(), ExpertMode::Sample)];
    for (free, mode) in steps {
        let mut gradients = model.params().gradients();
        pass(&model, &mut gradients, &LENGTHS, &mode, free);
        gradients.check_complete(free).unwrap();
        for parameter in model.params().named() {
            let got = gradients.get(model.params(), parameter.name).unwrap();
            assert_eq!(got.is_some(), free.contains(parameter.group), "{}", parameter.name);
            if let Some(got) = got.filter(|_| !parameter.name.ends_with("k_proj.bias")) {
                assert!(got.iter().any(|g| *g != 0.0), "{} has a gradient of zeros", parameter.name);
            }
        }
    }
}

/// The largest entries of every parameter's gradient against central differences of the loss.
#[test]
fn pre_norm_gradients_match_finite_differences() {
    let configs = [
        tiny(System::BASE),
        tiny(System::MAE),
        tiny(System::SIGMOID),
        by_position(System::SIGMOID),
        by_position(System::MAE),
        tiny(System::MOH),
        by_position(System::MOH),
        tiny(System::L0),
    ];
    for mut config in configs {
        // The loss of a pass does not tell them.
        (config.mixture.balance_loss, config.mixture.l0_penalty) = (0.0, 0.0);
        let mixture = config.mixture.clone();
        let mut model = new(&ModelConfig { norm: NormOrder::Pre, ..config }, 6);
        open_gates(&mut model);
        let mut gradients = model.params().gradients();
        pass(&model, &mut gradients, &LENGTHS, &ExpertMode::Mix, groups::trained());
        let trained = |p: &mae_engine::params::Named<'_>| groups::trained().contains(p.group);
        let names: Vec<String> = model.params().named().filter(trained).map(|p| p.name.to_owned()).collect();
        assert!(names.iter().any(|name| name == "decoder.layer_norm.weight"));
        for name in names.iter().filter(|name| !name.ends_with("k_proj.bias")) {
            let gradient = gradients.get(model.params(), name).unwrap().unwrap();
            let at =
                (0..gradient.len()).max_by(|a, b| gradient[*a].abs().total_cmp(&gradient[*b].abs())).unwrap();
            let original = model.params().get(name).unwrap();
            let mut moved = |by: f32| {
                let mut values = original.clone();
                values[at] += by;
                model.params_mut().set(name, &values).unwrap();
                let mut none = model.params().gradients();
                0.05 * pass(&model, &mut none, &LENGTHS, &ExpertMode::Mix, GroupSet::NONE)
            };
            let (want, got) = ((moved(2e-3) - moved(-2e-3)) / 4e-3, f64::from(gradient[at]));
            model.params_mut().set(name, &original).unwrap();
            assert!(
                (got - want).abs() < 0.02 * want.abs() + 1e-3,
                "{mixture:?}: d{name}[{at}] is {got}, differences give {want}"
            );
        }
    }
}

/// One draw per sentence: every sentence looks as if one expert had been given to each attention. One draw per row:
/// none does.
#[test]
fn sampling_units_share_draws() {
    let mut config = tiny(System::UNIFORM);
    (config.encoder_layers, config.decoder_layers) = (1, 1);
    let lengths = [(5, 11), (3, 12)];
    let batch = batch(&lengths);
    let device = Device::cpu();
    let given: Vec<Vec<Vec<f32>>> = (0..27u32)
        .map(|code| {
            let draws = [
                ("encoder.layers.0.self_attn", code / 9, lengths.len()),
                ("decoder.layers.0.self_attn", code / 3 % 3, batch.tgt.len()),
                ("decoder.layers.0.encoder_attn", code % 3, batch.tgt.len()),
            ];
            let draws: BTreeMap<String, Ids> =
                draws.map(|(name, e, rows)| (name.into(), Ids::from_host(&device, &vec![e; rows]))).into();
            logits(&new(&config, 7), &batch, &ExpertMode::Given(draws))
        })
        .collect();
    for unit in [SamplingUnit::Sentence, SamplingUnit::Row] {
        config.mixture.sampling_unit = unit;
        let model = new(&config, 7);
        let mut gradients = model.params().gradients();
        for update in 0..5 {
            let rng = Rng::new(1, update);
            let mut tape = Tape::training(model.params(), &mut gradients, GroupSet::NONE, rng);
            let drawn = logits_on(&model, &batch, &ExpertMode::Sample, &mut tape);
            for (sentence, drawn) in drawn.iter().enumerate() {
                let shared = given.iter().any(|given| differ_by(&given[sentence], drawn) < 1e-5);
                assert_eq!(shared, unit == SamplingUnit::Sentence, "{unit:?}, sentence {sentence}");
            }
        }
    }
}
