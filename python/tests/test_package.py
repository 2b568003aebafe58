"""The package around the module: its stubs, its program, its notebook."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mae_mt
from conftest import mae

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "experts.ipynb"


def test_the_package_carries_the_program(tmp_path):
    version = mae("--version")
    assert version.returncode == 0 and version.stdout.startswith(f"mae {mae_mt.__version__}")
    wrong = mae("generate", "--no-such-flag")
    assert wrong.returncode == 2 and "--no-such-flag" in wrong.stderr
    missing = mae("generate", str(tmp_path / "nothing"), "--source", os.devnull)
    assert missing.returncode == 1 and missing.stderr.startswith("mae: ") and "Traceback" not in missing.stderr
    tokens = mae("tokenize", "--lang", "en", input="Isn't it?\n")
    assert tokens.stdout == "Isn &apos;t it ?\n"


def test_the_stubs_agree_with_the_module():
    pytest.importorskip("mypy")
    checked = subprocess.run([sys.executable, "-m", "mypy.stubtest", "mae_mt", "--concise"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_notebook_runs():
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    done = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    shown = json.dumps([cell.get("outputs") for cell in done.cells])
    assert "<svg" in shown and "encoder.layers.0.self_attn" in shown
