//! The groups that parameters belong to from birth. Optimisers, freezing and checkpoints work by group.

use mae_engine::{GroupId, GroupSet};

/// Parameters of gates: batch norm, two linear layers.
pub const GATE: GroupId = GroupId(0);
/// Output projections of attentions.
pub const ATTENTION_OUTPUT: GroupId = GroupId(1);
/// All other trained parameters.
pub const REST: GroupId = GroupId(2);
/// Kept and saved, never trained: running statistics of batch norms, stored positions.
pub const STATISTICS: GroupId = GroupId(3);

/// Every group with its name in files.
pub const ALL: [(GroupId, &str); 4] =
    [(GATE, "gate"), (ATTENTION_OUTPUT, "attention_output"), (REST, "rest"), (STATISTICS, "statistics")];

/// φ of the paper: the gates.
pub fn gates() -> GroupSet {
    GroupSet::of(&[GATE])
}

/// θ of the paper: everything but the gates.
pub fn all_but_gates() -> GroupSet {
    GroupSet::of(&[ATTENTION_OUTPUT, REST])
}

/// Every group.
pub fn kept() -> GroupSet {
    GroupSet::of(&ALL.map(|(group, _)| group))
}

/// All trained parameters.
pub fn trained() -> GroupSet {
    GroupSet::of(&[GATE, ATTENTION_OUTPUT, REST])
}
