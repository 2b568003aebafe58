//! Tables on a terminal.

use std::io::{self, Write};

/// Prints rows of cells in columns. The first column is aligned to the left, the others to the right.
pub fn print_columns<'a>(
    out: &mut impl Write,
    rows: impl Iterator<Item = &'a Vec<String>> + Clone,
) -> io::Result<()> {
    let columns = rows.clone().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| rows.clone().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows.clone() {
        let cell = |(i, cell): (usize, &String)| match i {
            0 => format!("{cell:<0$}", widths[0]),
            i => format!("{cell:>0$}", widths[i]),
        };
        writeln!(out, "  {}", row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  "))?;
    }
    Ok(())
}

/// Duration in seconds, minutes or hours.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}
