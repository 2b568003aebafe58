//! Experts: subsets of heads. An expert of h heads with t left out scales the rest by h/(h−t).

/// All experts that leave `dropped` of `heads` heads out: C(h, t) of them, in the order of the heads they leave out
/// ((0,1), (0,2), … for t = 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// h.
    pub heads: usize,
    /// t.
    pub dropped: usize,
}

impl Experts {
    /// C(h, t).
    pub fn count(&self) -> usize {
        self.checked_count().expect("configurations with more experts than can be counted are refused")
    }

    /// The same; `None` where it is too large a number.
    pub(crate) fn checked_count(&self) -> Option<usize> {
        (0..self.dropped).try_fold(1_usize, |count, i| Some(count.checked_mul(self.heads - i)? / (i + 1)))
    }

    /// The heads that each expert leaves out.
    pub fn left_out(&self) -> Vec<Vec<usize>> {
        let mut all = Vec::with_capacity(self.count());
        let mut chosen = Vec::new();
        extend(&mut chosen, 0, self, &mut all);
        all
    }

    /// M `[experts, heads]`, row-major: h/(h−t) where expert e keeps head j, else 0.
    pub fn matrix(&self) -> Vec<f32> {
        let keep = (self.heads as f64 / (self.heads - self.dropped) as f64) as f32;
        let row = |out: Vec<usize>| (0..self.heads).map(move |j| if out.contains(&j) { 0.0 } else { keep });
        self.left_out().into_iter().flat_map(row).collect()
    }

    /// M without some experts and heads: the row of an expert is the mean of the others' rows, so that its share goes
    /// to them evenly, and the column of a head is 0. At least one expert stays.
    pub fn matrix_without(&self, experts: &[usize], heads: &[usize]) -> Vec<f32> {
        let mut matrix = self.matrix();
        let kept = |e: &usize| !experts.contains(e);
        let mean = mean_row(&matrix, self.heads, (0..self.count()).filter(kept));
        for (e, row) in matrix.chunks_exact_mut(self.heads).enumerate() {
            if experts.contains(&e) {
                row.copy_from_slice(&mean);
            }
            heads.iter().for_each(|&head| row[head] = 0.0);
        }
        matrix
    }
}

/// The mean of some rows of a matrix.
pub fn mean_row(matrix: &[f32], cols: usize, rows: impl Iterator<Item = usize>) -> Vec<f32> {
    let (mut sum, mut count) = (vec![0.0; cols], 0);
    for row in rows {
        sum.iter_mut().zip(&matrix[row * cols..]).for_each(|(sum, value)| *sum += value);
        count += 1;
    }
    sum.iter().map(|sum| sum / count as f32).collect()
}

fn extend(chosen: &mut Vec<usize>, from: usize, experts: &Experts, all: &mut Vec<Vec<usize>>) {
    if chosen.len() == experts.dropped {
        all.push(chosen.clone());
        return;
    }
    for head in from..experts.heads {
        chosen.push(head);
        extend(chosen, head + 1, experts, all);
        chosen.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_binomial() {
        assert_eq!(Experts { heads: 8, dropped: 1 }.count(), 8);
        assert_eq!(Experts { heads: 8, dropped: 2 }.count(), 28);
        assert_eq!(Experts { heads: 16, dropped: 3 }.count(), 560);
        assert_eq!(
            Experts { heads: 4, dropped: 2 }.left_out(),
            [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
        );
    }

    #[test]
    fn shares_of_experts_that_are_off_go_to_the_others() {
        let experts = Experts { heads: 4, dropped: 1 };
        let third = 4.0 / 3.0;
        let matrix = experts.matrix_without(&[1], &[3]);
        assert_eq!(matrix[..4], [0.0, third, third, 0.0]);
        // Of the three others, each leaves one head out; head 1 is kept by all of them.
        let mean = [2.0 * third / 3.0, third, 2.0 * third / 3.0, 0.0];
        assert!(matrix[4..8].iter().zip(mean).all(|(found, want)| (found - want).abs() < 1e-6));
        assert_eq!(experts.matrix_without(&[], &[]), experts.matrix());
    }

    /// Rows sum to h, and so does any mixture; the uniform mixture weighs every head 1.
    #[test]
    fn rows_sum_to_the_heads_and_columns_average_to_one() {
        for (heads, dropped) in [(8, 1), (8, 2), (5, 3), (2, 1)] {
            let experts = Experts { heads, dropped };
            let matrix = experts.matrix();
            assert_eq!(matrix.len(), experts.count() * heads);
            for row in matrix.chunks_exact(heads) {
                assert!((row.iter().sum::<f32>() - heads as f32).abs() < 1e-4);
            }
            for j in 0..heads {
                let column: f32 = matrix.chunks_exact(heads).map(|row| row[j]).sum();
                assert!((column / experts.count() as f32 - 1.0).abs() < 1e-5);
            }
        }
    }
}
