//! fairseq v0.9's initial values. Each parameter draws from a stream of its own, named after it, so that systems
//! with and without gates begin with the same values where they share parameters.

use mae_data::vocab::PAD;
use mae_engine::ops::embed::sinusoids;
use mae_engine::{Device, GroupSet, Params, Result, Rng, Stream};
use rayon::prelude::*;

use crate::groups::{GATE, STATISTICS, gates, kept};
use crate::system::System;

/// Fills all parameters of a model of this system.
pub fn initialise(params: &mut Params, system: System, seed: u64) -> Result<()> {
    fill(params, kept(), system, seed)
}

/// Copies the gates of a model and gives them their initial values of `seed`. Statistics of their norms stay those of
/// `params`, so that a gate of the copy is one before its training that reads the inputs of a trained one.
pub fn untrained_gates(params: &Params, system: System, seed: u64) -> Result<Params> {
    let mut copy = params.part(GroupSet::of(&[GATE, STATISTICS]));
    fill(&mut copy, gates(), system, seed)?;
    Ok(copy)
}

/// Sets the last layers of gates to zero, so that every head weighs 1.
pub fn make_neutral(params: &mut Params, system: System) -> Result<()> {
    let Some(layer) = system.neutral_layer() else { return Ok(()) };
    let layers = params.named().filter(|p| p.name.contains(&format!(".gate.{layer}.")));
    let layers: Vec<(String, usize)> =
        layers.map(|p| (p.name.to_owned(), p.shape.iter().product())).collect();
    layers.into_iter().try_for_each(|(name, count)| params.set(&name, &vec![0.0; count]))
}

fn fill(params: &mut Params, groups: GroupSet, system: System, seed: u64) -> Result<()> {
    let named = params.named().filter(|p| groups.contains(p.group));
    let named: Vec<(String, Vec<usize>)> = named.map(|p| (p.name.to_owned(), p.shape.to_vec())).collect();
    for (name, shape) in &named {
        let stream = Rng::new(seed, 0).stream(stream_of(name));
        let fan_in = fan_in(name, shape, &named);
        let values = match system.starts_neutral(name) {
            true => vec![0.0; shape.iter().product()],
            false => values(name, shape, fan_in, stream),
        };
        params.set(name, &values)?;
    }
    Ok(())
}

fn values(name: &str, shape: &[usize], fan_in: usize, stream: Stream) -> Vec<f32> {
    let count: usize = shape.iter().product();
    // Each value is a function of its place, so threads may share the work.
    let places = || (0..count as u32).into_par_iter();
    let uniform = |bound: f32| places().map(|i| bound * (2.0 * stream.uniform(i, 0) - 1.0)).collect();
    let is = |suffix: &str| name.ends_with(suffix);
    // Xavier: √(6/(fan_in + fan_out)).
    let xavier = |gain: f32| gain * (6.0 / (shape[0] + shape[shape.len() - 1]) as f32).sqrt();
    let torch_default = 1.0 / (fan_in as f32).sqrt();
    // Tables of adaptive inputs; `.1.weight` are their projections.
    let is_band = name.contains("embed_tokens.embeddings.") && is(".0.weight");
    if is("embed_tokens.weight") || is("embed_out") || is_band {
        let deviation = (shape[1] as f32).powf(-0.5);
        let mut values: Vec<f32> = places().map(|i| deviation * stream.normal(i, 0)).collect();
        if is("embed_tokens.weight") || is("embeddings.0.0.weight") {
            values[PAD as usize * shape[1]..][..shape[1]].fill(0.0);
        }
        values
    } else if is("embed_positions.weight") {
        // Never trained, so it begins with something useful.
        sinusoids(&Device::cpu(), shape[0], shape[1]).to_host()
    } else if is("norm.weight") || is("running_var") {
        vec![1.0; count]
    } else if is("norm.bias") || is("running_mean") {
        vec![0.0; count]
    } else if name.contains(".gate.") {
        uniform(torch_default)
    } else if is("q_proj.weight") || is("k_proj.weight") || is("v_proj.weight") {
        uniform(xavier(std::f32::consts::FRAC_1_SQRT_2))
    } else if is("q_proj.bias") || is("k_proj.bias") || is("v_proj.bias") {
        uniform(torch_default)
    } else if is(".weight") {
        uniform(xavier(1.0))
    } else {
        vec![0.0; count]
    }
}

/// Columns of the weight that `name` is, or is the bias of.
fn fan_in(name: &str, shape: &[usize], all: &[(String, Vec<usize>)]) -> usize {
    let weight = name.strip_suffix(".bias").map(|stem| format!("{stem}.weight"));
    let partner = weight.and_then(|weight| all.iter().find(|(other, _)| *other == weight));
    let shape = partner.map_or(shape, |(_, shape)| shape);
    shape[shape.len() - 1]
}

/// FNV-1a.
fn stream_of(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
