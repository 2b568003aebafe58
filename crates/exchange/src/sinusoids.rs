//! Position vectors of other programs.

use mae_model::config::Positions;

use crate::tensor::Tensor;

/// Sinusoids: sines of all frequencies, then cosines. The first row is position `first`; frequencies fall from 1 to
/// 1/10000 in `divisor` steps.
fn table(rows: usize, width: usize, first: usize, divisor: f64) -> Vec<f32> {
    let half = width / 2;
    let mut out = Vec::with_capacity(rows * width);
    for row in 0..rows {
        let angle = |i: usize| (first + row) as f64 * (-(10000_f64.ln()) * i as f64 / divisor).exp();
        out.extend((0..half).map(|i| angle(i).sin() as f32));
        out.extend((0..half).map(|i| angle(i).cos() as f32));
    }
    out
}

/// The table of a kind of positions; `None` for [`Positions::Table`], which is stored.
pub(crate) fn of(kind: Positions, rows: usize, width: usize) -> Option<Vec<f32>> {
    let half = (width / 2) as f64;
    match kind {
        Positions::Fairseq => Some(table(rows, width, 2, half - 1.0)),
        Positions::Marian => Some(table(rows, width, 0, half)),
        Positions::Table => None,
    }
}

/// The table that CTranslate2 computes for models that have none: fairseq's frequencies, from position 1.
pub(crate) fn ctranslate2(rows: usize, width: usize) -> Vec<f32> {
    table(rows, width, 1, (width / 2) as f64 - 1.0)
}

/// The kind of positions whose table this is. Programs compute sines of large angles in f32, which costs up to 1e-4.
pub(crate) fn recognise(found: &Tensor<'_>) -> Positions {
    let [rows, width] = *found.shape() else { return Positions::Table };
    let values = found.read();
    let is = |kind: &Positions| {
        let table = of(*kind, rows, width).unwrap_or_default();
        table.len() == values.len() && table.iter().zip(&values).all(|(a, b)| (a - b).abs() < 3e-4)
    };
    [Positions::Fairseq, Positions::Marian].into_iter().find(is).unwrap_or(Positions::Table)
}
