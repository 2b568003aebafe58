//! Crates have one binary of tests, `tests/main.rs`: a file beside it that it does not name would never run.

use std::fs;
use std::path::Path;

#[test]
fn every_file_of_tests_is_a_module() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut files, mut missing) = (0, Vec::new());
    for library in fs::read_dir(crates).unwrap() {
        let tests = library.unwrap().path().join("tests");
        let Ok(main) = fs::read_to_string(tests.join("main.rs")) else { continue };
        for entry in fs::read_dir(&tests).unwrap() {
            let path = entry.unwrap().path();
            let module = format!("mod {};", path.file_stem().unwrap().display());
            files += 1;
            if !path.ends_with("main.rs") && !main.lines().any(|line| line == module) {
                missing.push(format!("{} has no `{module}`", tests.join("main.rs").display()));
            }
        }
    }
    assert!(files > 70, "only {files} files were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
