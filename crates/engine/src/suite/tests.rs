//! The suite itself, with the CPU in the place of the GPU.

use super::*;

/// Every case runs, gives the same again, and compares something: a result of zeros would say nothing.
#[test]
fn cases_agree_with_themselves() {
    let (first, second) = (Device::cpu(), Device::cpu());
    let mut faults = Vec::new();
    for numbers in [Numbers::Bf16, Numbers::F32] {
        for case in all_cases()
            .iter()
            .filter(|case| case.matches(numbers, Choice { small: true, ..Choice::default() }))
        {
            let (want, got) = (case.run(&first, numbers), case.run(&second, numbers));
            let mut rows = compare(case, numbers, &want, &got);
            rows.push(same_bits(case, numbers, &want, &got));
            faults.extend(rows.iter().filter(|row| row.severity() > 0.0).map(|row| format!("{row:?}")));
            let empty =
                want.iter().filter(|quantity| quantity.is_zero() && !quantity.name().contains("wrong"));
            faults
                .extend(empty.map(|quantity| format!("{} {}: {} is 0", case.op, case.what, quantity.name())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Mistakes of a GPU are seen.
#[test]
fn mistakes_are_seen() {
    let (cpu, numbers) = (Device::cpu(), Numbers::Bf16);
    let cases = all_cases();
    let case = cases.iter().find(|case| case.op == "segment_mean").expect("there is one");
    let want = case.run(&cpu, numbers);
    let seen = |change: &dyn Fn(&mut Vec<f32>)| {
        let mut got = want.clone();
        got.iter_mut().for_each(|quantity| change(quantity.values_mut()));
        compare(case, numbers, &want, &got).iter().any(|row| !row.ok())
    };
    assert!(!seen(&|_| {}));
    assert!(!seen(&|values| values.iter_mut().for_each(|v| *v *= 1.001)));
    assert!(seen(&|values| values.iter_mut().for_each(|v| *v *= 1.02)));
    assert!(seen(&|values| values[0] = f32::NAN));
    assert!(seen(&|values| values[0] = f32::INFINITY));
    assert!(seen(&|values| values.truncate(1)));
    // Rows that are not there: results may be anything finite, gradients must be 0.
    assert!(!seen(&|values| values.push(0.0)));
    assert!(seen(&|values| values.push(1e-9)));
    assert!(seen(&|values| values.push(f32::NAN)));
}

/// One row among many is found, though the norm of all hardly changes.
#[test]
fn a_single_bad_row_is_seen() {
    let case = Case::new("none", "", compare::Tolerance::default(), |_, _| Outcome::new());
    let quantity = |values: Vec<f32>| vec![compare::Quantity::value("y", 8, values)];
    let want = quantity(vec![1.0; 8 * 10_000]);
    let mut wrong = vec![1.0; 8 * 10_000];
    wrong[8 * 77..8 * 78].fill(1.5);
    let rows = compare(&case, Numbers::Bf16, &want, &quantity(wrong));
    assert!(rows[0].error < rows[0].tolerance && !rows[0].ok(), "{rows:?}");
}

#[test]
fn a_filter_chooses_by_op_and_by_description() {
    let cases = all_cases();
    let chosen = |choice| cases.iter().filter(|case| case.matches(Numbers::F32, choice)).count();
    let count = |filter| chosen(Choice { filter, small: false });
    let small = |filter| chosen(Choice { filter, small: true });
    assert!(count("batch_norm") > 5 && count("room to spare") > 10 && count("no such op") == 0);
    assert!(count("heads of 16") > 10 && count("heads of 128") == 0 && count("") < cases.len());
    assert!(0 < small("attention") && small("attention") < count("attention"));
}
