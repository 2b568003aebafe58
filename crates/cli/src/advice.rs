//! Flags that avoid an error of a library. Libraries do not know the program: their errors carry facts.

use std::error::Error;

use mae_engine::Numbers;

/// Advice for an error whose cause a flag can avoid.
pub fn advice(error: &anyhow::Error) -> Option<&'static str> {
    match error.chain().find_map(engine_error)? {
        mae_engine::Error::SharedMemory { numbers: Numbers::F32, .. } => {
            Some("--precision bf16 needs half of it")
        }
        _ => None,
    }
}

/// The engine's error behind those of crates that pass it on.
fn engine_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a mae_engine::Error> {
    let of_model = |error: &'a mae_model::Error| match error {
        mae_model::Error::Engine(error) => Some(error),
        _ => None,
    };
    let of_train = |error: &'a mae_train::Error| match error {
        mae_train::Error::Engine(error) => Some(error),
        mae_train::Error::Model(error) => of_model(error),
        _ => None,
    };
    cause
        .downcast_ref::<mae_engine::Error>()
        .or_else(|| cause.downcast_ref().and_then(of_model))
        .or_else(|| cause.downcast_ref().and_then(of_train))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_shared_memory_in_f32_names_the_flag() {
        let error = |numbers| mae_engine::Error::SharedMemory { kernel: "some", bytes: 1 << 20, numbers };
        let deep = mae_train::Error::Model(error(Numbers::F32).into());
        assert_eq!(
            advice(&anyhow::Error::new(deep).context("training")),
            advice(&error(Numbers::F32).into())
        );
        assert!(advice(&error(Numbers::F32).into()).is_some_and(|text| text.contains("--precision bf16")));
        assert_eq!(advice(&error(Numbers::Bf16).into()), None);
        assert_eq!(advice(&anyhow::anyhow!("another error")), None);
    }
}
