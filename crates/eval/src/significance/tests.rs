//! Cases that the golden tables of `tests/metrics.rs` do not cover.

use super::*;
use crate::metric::Metric;
use crate::ter::TerConfig;

fn counted(lines: &[(&str, &str)]) -> Counted {
    let mut counted = Counted::new(Metric::Ter(TerConfig::default()));
    for (hypothesis, reference) in lines {
        counted.add(hypothesis, &[reference]).expect("a reference");
    }
    counted
}

#[test]
fn a_system_does_not_differ_from_itself() {
    let system = counted(&[("a b", "a c"), ("d", "d"), ("", "e f")]);
    let compared =
        paired_bootstrap(&[system.clone(), system.clone()], Resampling::default()).expect("segments");
    assert_eq!(compared[0].p_value, None);
    assert_eq!(compared[1].interval, compared[0].interval);
    // No difference is larger than none: only the one that is added to be safe.
    assert_eq!(compared[1].p_value, Some(1.0 / 1001.0));
}

#[test]
fn what_cannot_be_compared_is_an_error() {
    let (short, long) = (counted(&[("a", "a")]), counted(&[("a", "a"), ("b", "b")]));
    let compared = paired_bootstrap(&[short.clone(), long], Resampling::default());
    assert_eq!(compared, Err(SignificanceError::Mismatch));
    assert_eq!(confidence(&counted(&[]), Resampling::default()), Err(SignificanceError::Nothing));
    let none = Resampling { samples: 0, ..Resampling::default() };
    assert_eq!(confidence(&short, none), Err(SignificanceError::Nothing));
}
