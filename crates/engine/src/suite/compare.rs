//! Two outcomes of a case side by side.

use super::case::Case;
use crate::device::Numbers;

/// One comparison of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The op.
    pub op: &'static str,
    /// Sizes and variation, in words.
    pub case: String,
    /// Number type of the GPU.
    pub numbers: Numbers,
    /// Name of what was compared: an output, a gradient (`d x`), running statistics.
    pub quantity: String,
    /// ‖gpu − cpu‖/‖cpu‖; NaN where something is not finite.
    pub error: f64,
    /// The same of the worst row: ‖gpu − cpu‖ over the larger of ‖cpu‖ and the rows' root mean square.
    pub worst_row: f64,
    /// Largest allowed `error`.
    pub tolerance: f64,
    /// Why the case could not be run to its end, if that is so.
    pub failure: Option<String>,
}

/// A single row may be off by so many times the tolerance of the whole: it averages over fewer values.
const ROW_FACTOR: f64 = 6.0;

impl Row {
    /// True if the error is within its tolerance.
    pub fn ok(&self) -> bool {
        self.severity() <= 1.0
    }

    /// The error as a multiple of what is allowed; infinite for what failed.
    pub fn severity(&self) -> f64 {
        let share = |error: f64, allowed: f64| if error == 0.0 { 0.0 } else { error / allowed };
        let worst = share(self.error, self.tolerance).max(share(self.worst_row, ROW_FACTOR * self.tolerance));
        // NaN is lost by `max` and by comparisons.
        let finite = self.error.is_finite() && self.worst_row.is_finite() && self.failure.is_none();
        if finite { worst } else { f64::INFINITY }
    }

    /// A case that could not be run to its end.
    pub(crate) fn failed(case: &Case, numbers: Numbers, failure: String) -> Self {
        let row = Self::of(case, numbers, "–".into(), [f64::NAN; 2], 0.0);
        Self { failure: Some(failure), ..row }
    }

    fn of(
        case: &Case,
        numbers: Numbers,
        quantity: String,
        [error, worst_row]: [f64; 2],
        tolerance: f64,
    ) -> Self {
        let (op, case) = (case.op, case.what.clone());
        Self { op, case, numbers, quantity, error, worst_row, tolerance, failure: None }
    }
}

/// Allowed errors of a case.
#[derive(Clone, Copy)]
pub(crate) struct Tolerance {
    bf16: f64,
    f32: f64,
    /// Values are compared as if their root mean square were at least this: what should be 0 up to rounding has no
    /// size of its own.
    floor: f64,
}

impl Default for Tolerance {
    /// One rounding to bfloat16 is off by 1.1·10⁻³ (2⁻⁹/√3), and most results see a few. The CPU's own products are off
    /// by up to 10⁻⁵ in training passes, where AMX leaves parts out.
    fn default() -> Self {
        Self::new(8e-3, 3e-5)
    }
}

impl Tolerance {
    pub(crate) fn new(bf16: f64, f32: f64) -> Self {
        Self { bf16, f32, floor: 1e-4 }
    }

    pub(crate) fn floor(self, floor: f64) -> Self {
        Self { floor, ..self }
    }

    pub(crate) fn of(self, numbers: Numbers) -> f64 {
        match numbers {
            Numbers::Bf16 => self.bf16,
            Numbers::F32 => self.f32,
        }
    }
}

/// A named result.
#[derive(Clone, Debug)]
pub(crate) struct Quantity {
    name: String,
    cols: usize,
    values: Vec<f32>,
    is_gradient: bool,
}

impl Quantity {
    pub(crate) fn value(name: impl Into<String>, cols: usize, values: Vec<f32>) -> Self {
        Self { name: name.into(), cols, values, is_gradient: false }
    }

    /// The gradient of `name`; `added`: to what was there.
    pub(crate) fn gradient(name: &str, added: bool, cols: usize, values: Vec<f32>) -> Self {
        let name = format!("d {name}{}", if added { ", added to" } else { "" });
        Self { name, cols, values, is_gradient: true }
    }

    pub(crate) fn is_gradient(&self) -> bool {
        self.is_gradient
    }

    #[cfg(test)]
    pub(crate) fn is_zero(&self) -> bool {
        self.values.iter().all(|&v| v == 0.0)
    }

    #[cfg(test)]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    #[cfg(test)]
    pub(crate) fn values_mut(&mut self) -> &mut Vec<f32> {
        &mut self.values
    }
}

/// Results of a case on a device.
pub(crate) type Outcome = Vec<Quantity>;

/// One row for each quantity, and one for the rows that only the GPU has.
pub(crate) fn compare(case: &Case, numbers: Numbers, want: &Outcome, got: &Outcome) -> Vec<Row> {
    let names = |outcome: &Outcome| outcome.iter().map(|quantity| quantity.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(want), names(got), "both devices give the same quantities");
    let mut rows = Vec::new();
    for (want, got) in want.iter().zip(got) {
        let (real, surplus) = got.values.split_at(want.values.len().min(got.values.len()));
        let errors = errors(&want.values, real, want.cols, case.tolerance.floor);
        rows.push(Row::of(case, numbers, want.name.clone(), errors, case.tolerance.of(numbers)));
        if !surplus.is_empty() {
            let name = format!("{}, surplus rows", want.name);
            rows.push(Row::of(case, numbers, name, [surplus_error(surplus, got.is_gradient); 2], 0.0));
        }
    }
    rows
}

/// Rows that are not there may hold anything finite (they meet gradients of 0), but must get no gradient.
fn surplus_error(values: &[f32], is_gradient: bool) -> f64 {
    match values.iter().all(|v| v.is_finite()) {
        false => f64::NAN,
        true if is_gradient => values.iter().fold(0.0f32, |most, v| most.max(v.abs())).into(),
        true => 0.0,
    }
}

/// The errors of a whole matrix and of its worst row.
fn errors(want: &[f32], got: &[f32], cols: usize, floor: f64) -> [f64; 2] {
    if want.is_empty() || want.len() != got.len() {
        return if want.len() == got.len() { [0.0; 2] } else { [f64::NAN; 2] };
    }
    let square = |v: f64| v * v;
    let of_rows = |f: &dyn Fn(f32, f32) -> f64| -> Vec<f64> {
        let rows = want.chunks(cols).zip(got.chunks(cols));
        rows.map(|(want, got)| want.iter().zip(got).map(|(&w, &g)| f(w, g)).sum()).collect()
    };
    let sizes = of_rows(&|want, _| square(want.into()));
    let differences = of_rows(&|want, got| square(f64::from(got) - f64::from(want)));
    let size = sizes.iter().sum::<f64>().max(square(floor) * want.len() as f64);
    let mean = size / sizes.len() as f64;
    // What is not a number is lost here and shows in the sum.
    let worst = differences.iter().zip(&sizes).fold(0.0f64, |most, (d, size)| most.max(d / size.max(mean)));
    [(differences.iter().sum::<f64>() / size).sqrt(), worst.sqrt()]
}

/// The share of values whose bits differ between two runs on the same device.
pub(crate) fn same_bits(case: &Case, numbers: Numbers, first: &Outcome, second: &Outcome) -> Row {
    let all = |outcome: &Outcome| -> Vec<u32> {
        outcome.iter().flat_map(|quantity| quantity.values.iter().map(|v| v.to_bits())).collect()
    };
    let (first, second) = (all(first), all(second));
    let differing = first.iter().zip(&second).filter(|(a, b)| a != b).count();
    let share = differing as f64 / first.len().max(1) as f64;
    Row::of(case, numbers, "same bits again".into(), [share; 2], 0.0)
}
