//! States of format 1, in which the parameters of a decoder lay in another order.

use mae_engine::{GroupId, Params};

/// The memory of an optimiser for a group, from the order of format 1 to that of `params`; `None` if it has another size.
pub(super) fn moved(params: &Params, group: GroupId, values: &[f32]) -> Option<Vec<f32>> {
    params.rearranged(group, &order(params.order(group)), values)
}

/// Each attention's projection of the memory came after that of its queries; now those of all layers come first.
fn order(now: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let of_memory = |block: &Vec<String>| block[0].ends_with(".encoder_attn.k_proj.weight");
    let Some(first) = now.iter().position(of_memory) else { return now };
    let mut then = Vec::with_capacity(now.len());
    for (index, block) in now.into_iter().enumerate() {
        // Weights, and the biases after them.
        if index == first || index == first + 1 {
            continue;
        }
        let attention = block[0].strip_suffix(".q_proj.bias").filter(|name| name.ends_with(".encoder_attn"));
        let attention = attention.map(str::to_owned);
        then.push(block);
        for kind in attention.iter().flat_map(|_| ["weight", "bias"]) {
            then.push(
                attention
                    .iter()
                    .flat_map(|name| ["k", "v"].map(|part| format!("{name}.{part}_proj.{kind}")))
                    .collect(),
            );
        }
    }
    then
}

#[cfg(test)]
mod tests {
    use mae_engine::{Device, ParamsBuilder};

    use super::*;

    const GROUP: GroupId = GroupId(0);

    /// Blocks of these sizes, declared as version 0.1 did and as this one does.
    const THEN: &[&[(&str, usize)]] = &[
        &[("table", 10)],
        &[("0.encoder_attn.q_proj.weight", 9)],
        &[("0.encoder_attn.q_proj.bias", 3)],
        &[("0.encoder_attn.k_proj.weight", 9), ("0.encoder_attn.v_proj.weight", 9)],
        &[("0.encoder_attn.k_proj.bias", 3), ("0.encoder_attn.v_proj.bias", 3)],
        &[("0.fc1.weight", 70)],
        &[("1.encoder_attn.q_proj.weight", 9)],
        &[("1.encoder_attn.q_proj.bias", 3)],
        &[("1.encoder_attn.k_proj.weight", 9), ("1.encoder_attn.v_proj.weight", 9)],
        &[("1.encoder_attn.k_proj.bias", 3), ("1.encoder_attn.v_proj.bias", 3)],
        &[("1.fc1.weight", 70)],
    ];
    const NOW: &[&[(&str, usize)]] = &[
        &[("table", 10)],
        &[
            ("0.encoder_attn.k_proj.weight", 9),
            ("0.encoder_attn.v_proj.weight", 9),
            ("1.encoder_attn.k_proj.weight", 9),
            ("1.encoder_attn.v_proj.weight", 9),
        ],
        &[
            ("0.encoder_attn.k_proj.bias", 3),
            ("0.encoder_attn.v_proj.bias", 3),
            ("1.encoder_attn.k_proj.bias", 3),
            ("1.encoder_attn.v_proj.bias", 3),
        ],
        &[("0.encoder_attn.q_proj.weight", 9)],
        &[("0.encoder_attn.q_proj.bias", 3)],
        &[("0.fc1.weight", 70)],
        &[("1.encoder_attn.q_proj.weight", 9)],
        &[("1.encoder_attn.q_proj.bias", 3)],
        &[("1.fc1.weight", 70)],
    ];

    /// The buffer of a group whose parameters hold numbers that tell them apart.
    fn buffer(blocks: &[&[(&str, usize)]]) -> (Params, Vec<f32>) {
        let mut builder = ParamsBuilder::default();
        for block in blocks {
            builder.block(block.iter().map(|(name, len)| ((*name).into(), vec![*len])).collect(), 1, GROUP);
        }
        let mut params = builder.finish(&Device::cpu());
        let mut names: Vec<(&str, usize)> = blocks.concat();
        names.sort_unstable();
        for (number, (name, len)) in names.into_iter().enumerate() {
            let values: Vec<f32> = (0..len).map(|i| (100 * (number + 1) + i) as f32).collect();
            params.set(name, &values).unwrap();
        }
        let values = params.group_to_host(GROUP);
        (params, values)
    }

    #[test]
    fn every_value_finds_its_parameter() {
        let ((_, then), (params, now)) = (buffer(THEN), buffer(NOW));
        assert_ne!(then, now);
        assert_eq!(moved(&params, GROUP, &then), Some(now));
        assert_eq!(moved(&params, GROUP, &then[1..]), None);
    }

    #[test]
    fn models_without_a_memory_stay_as_they_are() {
        let (params, values) = buffer(&[&[("table", 10)], &[("0.self_attn.k_proj.weight", 9)]]);
        assert_eq!(moved(&params, GROUP, &values), Some(values));
    }
}
