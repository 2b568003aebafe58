//! The figures of a study as files.

use std::path::Path;

use anyhow::{Context, Result};
use mae_data::files;
use mae_study::figures::curves::Against;
use mae_study::figures::of_study;
use mae_study::job::folder_name;
use mae_study::score::Score;
use mae_study::{RunResult, Study};

/// Writes those figures that the runs have the numbers for.
pub fn write(folder: &Path, (study, out): (&Study, &Path), score: Score, runs: &[RunResult]) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut figures = vec![
        ("scores.svg".to_owned(), of_study::scores(study, score, runs)),
        ("score-by-information.svg".to_owned(), of_study::score_by_information(study, score, runs)),
        ("tag-information.svg".to_owned(), of_study::tag_information(study, runs)),
    ];
    let names = runs.iter().map(|run| folder_name(&run.system, run.seed));
    let curves = of_study::learning_curves(study, out, names, &mut Vec::new());
    for curve in curves.iter().filter(|curve| curve.against == Against::Epochs) {
        // The first part of training would hide the differences at the end.
        let last = curve.series.iter().flat_map(|line| &line.points).map(|point| point.0).fold(0.0, f64::max);
        figures.push((format!("{}.svg", curve.name), of_study::bands(curve, (last / 2.0).floor())));
    }
    for (name, svg) in figures {
        if let Some(svg) = svg {
            files::write(folder.join(name), svg.as_bytes())?;
        }
    }
    Ok(())
}
