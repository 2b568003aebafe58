"""Language models: scores, continuations, streams."""


import numpy as np
import pytest

import mae_mt
from conftest import lines, mae


@pytest.fixture(scope="session")
def model(place) -> mae_mt.LanguageModel:
    for split, seed in (("train", 1), ("valid", 2)):
        (place / f"{split}.txt").write_text("".join(f"{source}\n" for source, _ in lines(600, seed)))
    folder = place / "lm-data"
    splits = ["--trainpref", "train.txt", "--validpref", "valid.txt"]
    mae("preprocess", "--only-source", *splits, "--destdir", folder, cwd=place, check=True)
    keys = {
        "model.arch": "transformer_lm_tiny", "model.decoder_layers": 1, "model.decoder_embed_dim": 32,
        "model.decoder_ffn_embed_dim": 64, "model.adaptive_softmax_cutoff": [],
    }
    run = mae_mt.train(
        folder, "wikitext2-base", save_dir=place / "lm", device="cpu", keys=keys, max_update=20, max_tokens=512,
        tokens_per_sample=32,
    )
    return mae_mt.LanguageModel(run.model, device="cpu")


def test_scores(model):
    line = model.score("one two three")
    assert len(line.tokens) == 4 and line.log_prob == pytest.approx(line.log_probs.sum(), rel=1e-5)
    both = model.score(["one two three", "four"])
    np.testing.assert_allclose(both[0].log_probs, line.log_probs, rtol=1e-5)


def test_streams_write_what_continuations_have(model):
    whole = model.continue_text("one two", max_len=6)
    tokens = list(model.stream("one two", max_len=6))
    assert [token.token for token in tokens] == whole.tokens
    assert whole.text.startswith("one two") and tokens[-1].text == whole.continuation
    drawn = [model.continue_text("one", sampling=True, seed=7, max_len=5).text for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_faults(model, place):
    with pytest.raises(ValueError, match="temperature"):
        model.continue_text("one", temperature=0.0)
    with pytest.raises(ValueError, match="language model"):
        mae_mt.Translator(place / "lm" / "checkpoint_best", device="cpu")
