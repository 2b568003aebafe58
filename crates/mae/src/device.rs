//! Devices that models compute on.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mae_engine::{ComputeType, Numbers};

use crate::error::Result;

/// The CPU or a GPU. Cheap to clone; clones are the same device.
///
/// ```
/// let device = mae::Device::cpu();
/// assert!(!device.is_gpu());
/// ```
#[derive(Clone)]
pub struct Device {
    engine: mae_engine::Device,
    /// A GPU has one stream of work: calls take turns.
    turns: Arc<Mutex<()>>,
    fallback: Option<Arc<str>>,
}

impl Device {
    /// The first GPU, or the CPU where none can be used; [`Device::fallback`] then gives the reason.
    pub fn auto() -> Self {
        match mae_engine::Device::cuda(0, Numbers::default()) {
            Ok(engine) => Self::from(engine),
            Err(error) => Self { fallback: Some(error.to_string().into()), ..Self::cpu() },
        }
    }

    /// The CPU. Calls use the threads of the current rayon pool and run side by side.
    pub fn cpu() -> Self {
        Self::from(mae_engine::Device::cpu())
    }

    /// The CPU, which trains in this number type; [`Device::cpu`] trains in f32. The error says that the processor has no
    /// instructions for bf16.
    pub fn cpu_with(numbers: Numbers) -> Result<Self> {
        Ok(Self::from(mae_engine::Device::cpu_with(numbers)?))
    }

    /// GPU number `ordinal`, from 0, with activations in bfloat16. The error says why it cannot be used.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Self::cuda_with(ordinal, Numbers::default())
    }

    /// GPU number `ordinal`, from 0, with this number type.
    pub fn cuda_with(ordinal: usize, numbers: Numbers) -> Result<Self> {
        Ok(Self::from(mae_engine::Device::cuda(ordinal, numbers)?))
    }

    /// The same device for models whose large matrices are held in this number type. By default a model is held as
    /// its folder stores it. Only CPUs have a choice: a GPU has the types of [`Numbers`].
    ///
    /// ```
    /// let device = mae::Device::cpu().with_compute_type(mae::ComputeType::Int8)?;
    /// # Ok::<(), mae::Error>(())
    /// ```
    pub fn with_compute_type(&self, compute: ComputeType) -> Result<Self> {
        Ok(Self { engine: self.engine.holding(compute)?, ..self.clone() })
    }

    /// Returns true for a GPU.
    pub fn is_gpu(&self) -> bool {
        self.engine.is_gpu()
    }

    /// The reason why [`Device::auto`] chose the CPU.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// The engine's device, for models of your own.
    pub fn engine(&self) -> &mae_engine::Device {
        &self.engine
    }

    /// Waits until no other call uses a GPU. CPUs need no turns.
    pub(crate) fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        // A call that panicked left no half of anything behind the lock: it guards nothing but the order.
        self.is_gpu().then(|| self.turns.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl From<mae_engine::Device> for Device {
    fn from(engine: mae_engine::Device) -> Self {
        Self { engine, turns: Arc::default(), fallback: None }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}
