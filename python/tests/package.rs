//! The Python tests, on the module of this build. They run where `MAE_TEST_PYTHON` names a Python with numpy and pytest
//! (and mypy, nbclient and ipykernel for all of them).

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn the_python_tests_pass() {
    let Some(python) = std::env::var_os("MAE_TEST_PYTHON") else {
        eprintln!("not run: MAE_TEST_PYTHON names no Python");
        return;
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The test, the module and the program are built into one folder.
    let built = std::env::current_exe().unwrap();
    let built = built.parent().unwrap();
    let package = tempfile::tempdir().unwrap();
    let folder = package.path().join("mae_mt");
    std::fs::create_dir(&folder).unwrap();
    for entry in std::fs::read_dir(here.join("package/mae_mt")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
    std::fs::copy(module(built), folder.join("_mae.abi3.so")).unwrap();
    let status = Command::new(python)
        .args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests"])
        .current_dir(here)
        .env("PYTHONPATH", package.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .status()
        .unwrap();
    assert!(status.success(), "pytest: {status}");
}

/// The extension module beside the test.
fn module(built: &Path) -> PathBuf {
    let name = format!("{}_mae{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let found =
        [built.join(&name), built.parent().unwrap().join(&name)].into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not in {}", built.display()))
}
