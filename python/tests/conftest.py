"""A small translation model and a small language model, trained once for all tests."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

import mae_mt

WORDS = {
    "one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf",
    "six": "sechs", "seven": "sieben", "eight": "acht", "nine": "neun",
}
TINY = {
    "model.arch": "transformer_tiny",
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "model.encoder_embed_dim": 32,
    "model.encoder_ffn_embed_dim": 64,
    "model.encoder_attention_heads": 4,
}


def mae(*arguments, **options) -> subprocess.CompletedProcess:
    """Runs the program that the package carries."""
    command = [sys.executable, "-m", "mae_mt", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def lines(count: int, seed: int) -> list[tuple[str, str]]:
    draw = random.Random(seed)
    pairs = []
    for _ in range(count):
        words = [draw.choice(list(WORDS)) for _ in range(draw.randint(2, 6))]
        pairs.append((" ".join(words), " ".join(WORDS[word] for word in words)))
    return pairs


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("mae")


@pytest.fixture(scope="session")
def data(place) -> Path:
    for split, count, seed in (("train", 1500, 1), ("valid", 60, 2)):
        pairs = lines(count, seed)
        (place / f"{split}.en").write_text("".join(f"{source}\n" for source, _ in pairs))
        (place / f"{split}.de").write_text("".join(f"{target}\n" for _, target in pairs))
    folder = place / "data"
    splits = ["--trainpref", "train", "--validpref", "valid"]
    mae("preprocess", "-s", "en", "-t", "de", *splits, "--destdir", folder, cwd=place, check=True)
    return folder


@pytest.fixture(scope="session")
def trained(place, data) -> mae_mt.TrainedModel:
    return mae_mt.train(
        data, "multi30k-mae7", save_dir=place / "run", device="cpu", keys={**TINY, "model.mixture.dropped_heads": 1},
        max_update=120, max_tokens=512, warmup_updates=40, lr=0.005, log_interval=20,
    )


@pytest.fixture(scope="session")
def translator(trained) -> mae_mt.Translator:
    return mae_mt.Translator(trained.model, device="cpu")


@pytest.fixture(scope="session")
def sources() -> list[str]:
    return [source for source, _ in lines(500, 3)]
