"""Metrics: sacreBLEU's numbers."""

import pytest

import mae_mt

FOUND = ["the cat sat on a mat .", "he reads", "it is raining again today"]
WANTED = ["the cat sat on the mat .", "he reads a book", "it rains again today"]
OTHER = ["a cat sat on the mat .", "he is reading", "today it is raining again"]


def test_scores_and_signatures():
    score = mae_mt.bleu(FOUND, WANTED)
    assert float(score) == score.score and 0 < score.score < 100
    assert "nrefs:1" in score.signature and "tok:13a" in score.signature
    assert mae_mt.bleu(WANTED, WANTED).score == pytest.approx(100.0)
    assert mae_mt.bleu(FOUND, [WANTED, OTHER]).score > score.score
    assert mae_mt.chrf(FOUND, WANTED, word_order=2).name == "chrF2++"
    assert mae_mt.ter(WANTED, WANTED).score == 0.0


def test_the_numbers_are_those_of_sacrebleu():
    sacrebleu = pytest.importorskip("sacrebleu")
    assert mae_mt.bleu(FOUND, WANTED).score == pytest.approx(sacrebleu.corpus_bleu(FOUND, [WANTED]).score)
    assert mae_mt.chrf(FOUND, WANTED).score == pytest.approx(sacrebleu.corpus_chrf(FOUND, [WANTED]).score)
    assert mae_mt.ter(FOUND, WANTED).score == pytest.approx(sacrebleu.corpus_ter(FOUND, [WANTED]).score)


def test_two_systems_are_compared():
    found = mae_mt.paired(FOUND, WANTED, WANTED, samples=200)
    assert found.system == pytest.approx(100.0) and found.baseline < found.system
    assert 0.0 < found.p_value <= 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: mae_mt.bleu([], []),
        lambda: mae_mt.bleu(FOUND, WANTED[:2]),
        lambda: mae_mt.paired(FOUND, FOUND[:1], WANTED),
        lambda: mae_mt.paired(FOUND, FOUND, WANTED, metric="comet"),
    ],
)
def test_faults_are_value_errors(call):
    with pytest.raises(ValueError):
        call()
