//! Groups, blocks and names of parameters: which values lie where.

/// Number of a group of parameters; the model gives groups their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId(pub usize);

/// A set of groups, for instance those a step updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSet(u32);

impl GroupSet {
    /// No group.
    pub const NONE: Self = Self(0);

    /// The set of the given groups.
    pub fn of(groups: &[GroupId]) -> Self {
        Self(groups.iter().fold(0, |set, group| set | 1 << group.0))
    }

    /// True if `group` is in the set.
    pub fn contains(self, group: GroupId) -> bool {
        self.0 >> group.0 & 1 == 1
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The groups that are in both sets.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// Handle of a parameter block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamId(pub(super) usize);

impl ParamId {
    /// Its place in the order of declaration.
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// A matrix `[rows, cols]` in a group's buffer. Its rows may be shared out among several names: the query, key
/// and value projections of an attention are three names but one block, so that one product serves all three.
#[derive(Clone, Debug)]
pub struct Block {
    /// The group that owns the block.
    pub group: GroupId,
    /// First value in the group's buffer.
    pub offset: usize,
    /// Rows of all parts together.
    pub rows: usize,
    /// Values per row.
    pub cols: usize,
    pub(super) parts: Vec<Part>,
}

#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) first_row: usize,
    pub(super) rows: usize,
}

impl Block {
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.rows * self.cols
    }
}

/// One named parameter, as files see it.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its shape: `[n]` for vectors, `[rows, cols]` for matrices.
    pub shape: &'a [usize],
    /// The group that owns it.
    pub group: GroupId,
    /// The block, and the rows of it that are this parameter's.
    pub(super) block: usize,
    pub(super) rows: std::ops::Range<usize>,
    /// Place of its values in the group's buffer.
    pub(super) range: std::ops::Range<usize>,
}

impl<'a> Named<'a> {
    pub(super) fn new(index: usize, block: &'a Block, part: &'a Part) -> Self {
        let begin = block.offset + part.first_row * block.cols;
        Self {
            name: &part.name,
            shape: &part.shape,
            group: block.group,
            block: index,
            rows: part.first_row..part.first_row + part.rows,
            range: begin..begin + part.rows * block.cols,
        }
    }
}

/// The layout of all parameters: which block lies where in which group.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    pub(super) blocks: Vec<Block>,
    pub(super) group_len: Vec<usize>,
}

impl Layout {
    pub(super) fn named(&self) -> impl Iterator<Item = Named<'_>> {
        self.blocks
            .iter()
            .enumerate()
            .flat_map(|(index, block)| block.parts.iter().map(move |part| Named::new(index, block, part)))
    }
}

/// Blocks begin on a multiple of this, so that a row of vectors can be read aligned on any device.
pub(super) const ALIGNMENT: usize = 64;
