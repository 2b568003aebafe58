//! Systems: which gate an attention has, and which steps train it. A system is a row of [`SYSTEMS`]; everything else
//! asks the row.

use std::fmt::{self, Debug, Display, Formatter};
use std::sync::Arc;

use mae_engine::{Device, ParamsBuilder};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::attention::AttentionConfig;
use crate::config::GateReads;
use crate::gate::{Gate, experts, l0, moh, sigmoid};
use crate::pass::GateValues;
use crate::{Error, Result};

/// All systems, in the order of messages.
pub const SYSTEMS: [System; 7] =
    [System::BASE, System::UNIFORM, System::MAE, System::NOBCD, System::SIGMOID, System::MOH, System::L0];

/// A system: a row of [`SYSTEMS`]. In configurations it is the value of `model.mixture.system`.
#[derive(Clone, Copy)]
pub struct System(&'static Spec);

/// Properties of a system.
pub(crate) struct Spec {
    /// Value of `model.mixture.system`.
    pub(crate) key: &'static str,
    /// Name in messages and tables.
    pub(crate) title: &'static str,
    /// Name in recipes and studies.
    pub(crate) name: Name,
    /// Unit of the mixture.
    pub(crate) mixes: Mixes,
    /// Training steps of the system.
    pub(crate) training: Training,
    /// The gate of each attention.
    pub(crate) gate: Option<GateKind>,
}

/// Name of a system for users.
pub(crate) enum Name {
    /// One name, with the keys that it sets besides `system`.
    Plain { name: &'static str, dropped_heads: Option<usize>, gate_input: GateReads },
    /// A name with the number of heads that an expert keeps: `mae7`.
    KeptHeads(&'static str),
}

/// Unit of a system's mixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixes {
    /// Nothing: every head weighs 1.
    Nothing,
    /// Experts, which are subsets of the heads. F steps draw one per row.
    Experts,
    /// Heads, each with a weight of its own. Nothing is drawn.
    Heads,
}

/// Training steps of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Training {
    /// F steps only: all parameters but gates.
    Rest,
    /// Block coordinate descent: F steps train all parameters but gates, G steps the gates.
    Alternating,
    /// Joint steps: gates and the rest at once.
    Joint(GateOptimizer),
}

/// Optimiser of the gates in joint steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOptimizer {
    /// One of their own, as in G steps.
    Own,
    /// The optimiser of the rest.
    Shared,
}

/// Constructor of the gates of a system.
pub(crate) struct GateKind {
    /// Gates of one family have the same parameters; weights move between their systems.
    pub(crate) family: &'static str,
    /// Layers with parameters.
    pub(crate) layers: Layers,
    /// Initial values of that layer.
    pub(crate) start: Start,
    /// Reports faults of the keys it uses.
    pub(crate) check: fn(&AttentionConfig<'_>, &mut dyn FnMut(bool, String)),
    /// Declares the parameters `<name>.*`.
    pub(crate) declare: fn(&mut ParamsBuilder, name: &str, &AttentionConfig<'_>, &Device) -> Arc<dyn Gate>,
}

/// Layers of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layers {
    /// None.
    Nothing,
    /// Some; zeros in the one of this name make every head weigh 1.
    NeutralWith(&'static str),
    /// Some, and no zeros make every head weigh 1.
    NeverNeutral,
}

/// How gates start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With random values in all layers.
    Random,
    /// With zeros in the neutral layer: every head weighs 1.
    Neutral,
}

/// The paper's gates.
const NETWORK: GateKind = GateKind {
    family: "experts",
    layers: Layers::NeutralWith("fc2"),
    start: Start::Random,
    check: experts::check_network,
    declare: experts::with_network,
};

impl System {
    /// BASE: plain multi-head attention.
    pub const BASE: Self = Self(&Spec {
        key: "base",
        title: "BASE",
        name: Name::Plain { name: "base", dropped_heads: None, gate_input: GateReads::Mean },
        mixes: Mixes::Nothing,
        training: Training::Rest,
        gate: None,
    });
    /// uni-MAE: one expert drawn uniformly in training, all of them equally at test time.
    pub const UNIFORM: Self = Self(&Spec {
        key: "uniform",
        title: "uni-MAE",
        name: Name::KeptHeads("uni-mae"),
        mixes: Mixes::Experts,
        training: Training::Rest,
        gate: Some(GateKind {
            family: "experts",
            layers: Layers::Nothing,
            start: Start::Random,
            check: experts::check,
            declare: experts::even,
        }),
    });
    /// MAE: gates trained by block coordinate descent.
    pub const MAE: Self = Self(&Spec {
        key: "mae",
        title: "MAE",
        name: Name::KeptHeads("mae"),
        mixes: Mixes::Experts,
        training: Training::Alternating,
        gate: Some(NETWORK),
    });
    /// NoBCD: the same model, gates and the rest trained jointly.
    pub const NOBCD: Self = Self(&Spec {
        key: "nobcd",
        title: "NoBCD",
        name: Name::Plain { name: "nobcd", dropped_heads: Some(1), gate_input: GateReads::Mean },
        mixes: Mixes::Experts,
        training: Training::Joint(GateOptimizer::Own),
        gate: Some(NETWORK),
    });

    /// Sigmoid head gates: a weight for each head, trained with the rest.
    pub const SIGMOID: Self = Self(&sigmoid::SYSTEM);

    /// MoH: shared and routed heads, trained with the rest.
    pub const MOH: Self = Self(&moh::SYSTEM);

    /// L0: one hard concrete gate for each head, the same for all inputs, with a penalty on open heads.
    pub const L0: Self = Self(&l0::SYSTEM);

    /// Value of `model.mixture.system`.
    pub fn key(self) -> &'static str {
        self.0.key
    }

    /// Name for messages and tables.
    pub fn title(self) -> &'static str {
        self.0.title
    }

    /// Unit of the mixture.
    pub fn mixes(self) -> Mixes {
        self.0.mixes
    }

    /// Returns true if attentions have experts.
    pub fn has_experts(self) -> bool {
        self.0.mixes == Mixes::Experts
    }

    /// Training steps of the system.
    pub fn training(self) -> Training {
        self.0.training
    }

    /// Returns true if attentions have gates with parameters.
    pub fn is_gated(self) -> bool {
        self.gate().is_some_and(|gate| gate.layers != Layers::Nothing)
    }

    /// Meaning of the numbers of its gates.
    pub fn values(self) -> GateValues {
        match self.0.mixes {
            Mixes::Nothing | Mixes::Experts => GateValues::Probabilities,
            Mixes::Heads => GateValues::Weights,
        }
    }

    /// The layer of a gate whose zeros make every head weigh 1, so that a model computes what it did without gates.
    pub fn neutral_layer(self) -> Option<&'static str> {
        match self.gate()?.layers {
            Layers::NeutralWith(layer) => Some(layer),
            Layers::Nothing | Layers::NeverNeutral => None,
        }
    }

    /// Returns true if a parameter of this name starts with zeros so that every head weighs 1.
    pub(crate) fn starts_neutral(self, parameter: &str) -> bool {
        let starts = self.gate().is_some_and(|gate| gate.start == Start::Neutral);
        let layer = self.neutral_layer().filter(|_| starts);
        layer.is_some_and(|layer| parameter.contains(&format!(".gate.{layer}.")))
    }

    /// Returns true if gates of the two systems have the same parameters, so that one can take the other's.
    pub fn shares_gates_with(self, other: Self) -> bool {
        let family = |system: Self| system.0.gate.as_ref().map(|gate| gate.family);
        family(self) == family(other)
    }

    pub(crate) fn gate(self) -> Option<&'static GateKind> {
        self.0.gate.as_ref()
    }

    /// The system of this key.
    pub fn of_key(key: &str) -> Option<Self> {
        SYSTEMS.into_iter().find(|system| system.key() == key)
    }

    /// The system that a user names: base, nobcd, mae7, uni-mae6, …; the number is the heads that an expert keeps, of
    /// `heads`. Case does not matter.
    pub fn named(name: &str, heads: usize) -> Result<NamedSystem> {
        let lower = name.to_lowercase().replace('_', "-");
        for system in SYSTEMS {
            match system.0.name {
                Name::Plain { name, dropped_heads, gate_input } if name == lower => {
                    return Ok(NamedSystem { system, dropped_heads, gate_input });
                }
                Name::Plain { .. } => {}
                Name::KeptHeads(prefix) => {
                    let Some(kept) = lower.strip_prefix(prefix) else { continue };
                    let kept = kept.trim_start_matches('-').parse::<usize>();
                    let dropped = match kept {
                        Ok(kept) if kept > 0 && kept < heads => heads - kept,
                        Ok(_) => return Err(Error::KeptHeads { name: name.into(), heads }),
                        Err(_) => return Err(Error::KeptHeadsMissing { name: name.into() }),
                    };
                    let (dropped_heads, gate_input) = (Some(dropped), GateReads::Mean);
                    return Ok(NamedSystem { system, dropped_heads, gate_input });
                }
            }
        }
        Err(Error::NoSystem { name: name.into(), known: Self::examples() })
    }

    /// The name that a user gives this system, whose experts keep `kept` heads.
    pub(crate) fn name(self, kept: usize) -> String {
        match self.0.name {
            Name::Plain { name, .. } => name.to_owned(),
            Name::KeptHeads(prefix) => format!("{prefix}{kept}"),
        }
    }

    /// Names that users can give, with the numbers of the paper.
    pub fn examples() -> Vec<String> {
        let mut names: Vec<String> =
            SYSTEMS.into_iter().flat_map(|system| [7, 6].map(|kept| system.name(kept))).collect();
        names.dedup();
        names
    }
}

/// The keys of a system that was given by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedSystem {
    /// `model.mixture.system`.
    pub system: System,
    /// `model.mixture.dropped_heads`, where the name says how many.
    pub dropped_heads: Option<usize>,
    /// `model.mixture.gate_input`.
    pub gate_input: GateReads,
}

impl Default for System {
    fn default() -> Self {
        Self::BASE
    }
}

impl PartialEq for System {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for System {}

impl Debug for System {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

impl Display for System {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

impl Serialize for System {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
}

impl<'de> Deserialize<'de> for System {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let key = String::deserialize(deserializer)?;
        Self::of_key(&key).ok_or_else(|| {
            let known = SYSTEMS.map(|system| format!("`{}`", system.key())).join(", ");
            D::Error::custom(format!("unknown variant `{key}`, expected one of {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_survive_a_round_trip() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Keys {
            system: System,
        }
        for system in SYSTEMS {
            let text = toml::to_string(&Keys { system }).unwrap();
            assert_eq!(text, format!("system = \"{}\"\n", system.key()));
            assert_eq!(toml::from_str::<Keys>(&text).unwrap(), Keys { system });
            assert_eq!(SYSTEMS.iter().filter(|other| other.key() == system.key()).count(), 1);
        }
        let error = toml::from_str::<Keys>("system = \"mea\"").unwrap_err().to_string();
        assert!(error.contains("`mea`") && error.contains("`nobcd`"), "{error}");
    }

    #[test]
    fn names_are_the_papers() {
        let named = |name: &str, heads| {
            let found = System::named(name, heads).unwrap();
            (found.system.key(), found.dropped_heads)
        };
        assert_eq!(named("mae-7", 8), ("mae", Some(1)));
        assert_eq!(named("uni-MAE-6", 8), ("uniform", Some(2)));
        assert_eq!(named("mae13", 16), ("mae", Some(3)));
        assert_eq!(named("base", 8), ("base", None));
        assert_eq!(named("nobcd", 8), ("nobcd", Some(1)));
        assert_eq!(named("sigmoid", 8), ("sigmoid", None));
        assert_eq!(named("MoH", 8), ("moh", None));
        assert_eq!(named("L0", 8), ("l0", None));
        let error = |name: &str| System::named(name, 8).unwrap_err().to_string();
        assert!(error("mae8").contains("between 1 and 7"));
        assert!(error("mae").contains("as in mae7"));
        assert!(error("foo").contains("base, uni-mae7, uni-mae6, mae7"));
    }
}
