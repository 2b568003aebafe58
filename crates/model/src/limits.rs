//! Sizes beyond which a configuration is a mistake (a digit too many, a damaged file). They are refused before anything
//! is allocated, and below them nothing that is computed from sizes can overflow.

use crate::experts::Experts;
use crate::stack::{Side, StackConfig};

const LAYERS: usize = 1 << 10;
const WIDTH: usize = 1 << 16;
const POSITIONS: usize = 1 << 20;
const EXPERTS: usize = 1 << 14;
/// Numbers in all layers and tables: 64 GiB of them.
const NUMBERS: usize = 1 << 34;

/// Tells `require` what must hold, and the fault where it does not.
pub(crate) fn check(stacks: &[StackConfig<'_>], positions: usize, require: &mut impl FnMut(bool, String)) {
    let mut small = true;
    let mut at_most = |what: &str, value: usize, most: usize| {
        small &= value <= most;
        require(value <= most, format!("{what} = {value} is too large; {most} is the most there can be"));
    };
    at_most("max_positions", positions, POSITIONS);
    let side = |stack: &StackConfig<'_>| if stack.side == Side::Encoder { "encoder" } else { "decoder" };
    for stack in stacks {
        at_most(&format!("{}_layers", side(stack)), stack.layers, LAYERS);
    }
    // All stacks have the widths of the first.
    if let Some(stack) = stacks.first() {
        at_most(&format!("{}_embed_dim", side(stack)), stack.width, WIDTH);
        at_most(&format!("{}_ffn_embed_dim", side(stack)), stack.inner, WIDTH);
        at_most("mixture.gate_hidden", stack.mixture.gate_hidden, WIDTH);
    }
    if small {
        let numbers = stacks.iter().map(numbers).sum::<usize>();
        let numbers = numbers + positions * stacks.first().map_or(0, |stack| stack.width);
        let fault = format!(
            "layers, widths and positions come to about {:.1} GiB of parameters; 64 GiB is the most there can be",
            numbers as f64 / f64::from(1 << 28)
        );
        require(numbers <= NUMBERS, fault);
    }
}

/// Tells `require` that there must not be more experts than can be used.
pub(crate) fn check_experts(heads: usize, dropped: usize, require: &mut dyn FnMut(bool, String)) {
    // More heads than numbers of a row, or none left, is a fault of its own.
    if heads <= WIDTH && dropped < heads {
        let count = Experts { heads, dropped }.checked_count().unwrap_or(usize::MAX);
        require(
            count <= EXPERTS,
            format!(
                "experts of {heads} heads with {dropped} left out = {count} is too large; {EXPERTS} is the most there \
                 can be"
            ),
        );
    }
}

/// Numbers of a table of positions that any file may ask for.
const SMALL_TABLE: usize = 1 << 24;
/// Numbers of a table of positions for each number in the file of weights.
const TABLE_PER_NUMBER: usize = 16;

/// Returns the fault of a configuration that asks for more than a file of weights with room for so many numbers can
/// hold. Nothing is allocated for it then. Sizes are within the limits of [`check`].
pub(crate) fn fault_of_file(stacks: &[StackConfig<'_>], positions: usize, numbers: u64) -> Option<String> {
    let held = usize::try_from(numbers).unwrap_or(usize::MAX);
    let least = stacks.iter().map(least_numbers).fold(0, usize::saturating_add);
    let table = positions * stacks.first().map_or(0, |stack| stack.width);
    if least > held {
        Some(format!(
            "layers and widths come to at least {least} parameters, but the file of weights has room for {held}: they are \
             not of one model"
        ))
    } else if table > SMALL_TABLE.saturating_add(held.saturating_mul(TABLE_PER_NUMBER)) {
        Some(format!(
            "max_positions = {positions} needs a table of {:.1} GiB, which is out of proportion to the {held} parameters \
             of the model",
            table as f64 / f64::from(1 << 28)
        ))
    } else {
        None
    }
}

/// Number of parameters that a stack has at least.
fn least_numbers(stack: &StackConfig<'_>) -> usize {
    let heads = if stack.head_dim == 0 { stack.width } else { stack.heads.saturating_mul(stack.head_dim) };
    let attention = heads.saturating_mul(4 * stack.width);
    stack.layers.saturating_mul(attention.saturating_add(2 * stack.width * stack.inner))
}

/// About how many parameters a stack has, at most.
fn numbers(stack: &StackConfig<'_>) -> usize {
    let attention = 4 * stack.width * stack.width + stack.mixture.gate_hidden * (stack.width + EXPERTS);
    stack.layers * (2 * attention + 2 * stack.width * stack.inner)
}

#[cfg(test)]
mod tests {
    use crate::ModelConfig;
    use crate::config::{Mixture, System};

    #[test]
    fn absurd_sizes_are_faults_and_not_allocations() {
        let tiny = || ModelConfig::arch("transformer_tiny").unwrap();
        let experts = Mixture { system: System::MAE, dropped_heads: 32, ..Mixture::default() };
        let gate = Mixture { system: System::MAE, gate_hidden: 1 << 60, ..Mixture::default() };
        for (config, part) in [
            (ModelConfig { encoder_embed_dim: 1 << 62, ..tiny() }, "embed_dim = 4611686018427387904"),
            (ModelConfig { encoder_ffn_embed_dim: usize::MAX, ..tiny() }, "ffn_embed_dim"),
            (ModelConfig { decoder_layers: 1 << 40, ..tiny() }, "layers = 1099511627776"),
            (ModelConfig { max_positions: 1 << 50, ..tiny() }, "max_positions"),
            (ModelConfig { encoder_attention_heads: 64, mixture: experts, ..tiny() }, "64 heads with 32"),
            (ModelConfig { mixture: gate, ..tiny() }, "gate_hidden"),
            (ModelConfig { encoder_embed_dim: 1 << 16, encoder_layers: 1000, ..tiny() }, "GiB of parameters"),
        ] {
            let text = config.check().unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
