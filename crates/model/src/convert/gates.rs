//! Gates into a plain model: all experts weigh the same at first.

use mae_engine::{Device, ParamsBuilder, Tape, Tensor, Var};

use super::Convertible;
use super::fold::names;
use crate::config::Mixture;
use crate::experts::Experts;
use crate::kind::Config;
use crate::{Result, init};

/// A plain model with another mixture, whose gates are new and neutral.
pub(super) fn with<M: Convertible>(plain: &M, mixture: Mixture, seed: u64) -> Result<M> {
    let (system, heads) = (mixture.system, plain.config().heads());
    let mut model = plain.rebuilt(mixture, heads, plain.head_dim())?;
    init::initialise(model.params_mut(), system, seed)?;
    init::make_neutral(model.params_mut(), system)?;
    for (name, _) in names(&model).into_iter().filter(|(_, of_gate)| !of_gate) {
        let values = plain.params().get(&name)?;
        model.params_mut().set(&name, &values)?;
    }
    Ok(model)
}

/// Weight that uniform gates over these experts give to every head on a CPU: a rounded sum, mostly 1 exactly.
pub fn uniform_weight(experts: Experts) -> f32 {
    let device = Device::cpu();
    let params = ParamsBuilder::default().finish(&device);
    let count = experts.count();
    let matrix = Tensor::from_host(&device, [count, experts.heads], &experts.matrix());
    let logits = Var::constant(Tensor::from_host(&device, [1, count], &vec![0.0; count]));
    let weights = Tape::evaluation(&params).mix_experts(&logits, &matrix).weights.tensor().to_host();
    // All heads are left out equally often, so their sums have the same terms, in the same order.
    weights[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_gates_weigh_heads_exactly_one_for_the_usual_numbers() {
        let weight = |heads, dropped| uniform_weight(Experts { heads, dropped });
        for heads in [2, 4, 8, 16] {
            for dropped in 1..4.min(heads) {
                assert_eq!(weight(heads, dropped), 1.0, "{heads} heads, {dropped} left out");
            }
        }
        // Others are off by rounding, as documented.
        assert_eq!(weight(12, 1), 1.0 + f32::EPSILON);
        for (heads, dropped) in [(6, 2), (10, 3), (12, 2), (12, 3), (20, 2)] {
            assert!((weight(heads, dropped) - 1.0).abs() < 1e-5, "{heads} heads, {dropped} left out");
        }
    }
}
