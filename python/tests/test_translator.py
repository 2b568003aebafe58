"""Translators: the program's results, threads, forks, bad input."""

import json
import os
import re
import shutil
import threading

import numpy as np
import pytest

import mae_mt
from conftest import mae


def test_text_and_scores_are_those_of_the_program(translator, trained, sources, place):
    (place / "test.en").write_text("".join(f"{line}\n" for line in sources))
    found = mae("generate", trained.model, "--source", place / "test.en", "--device", "cpu", check=True).stdout
    wanted = dict(re.findall(r"^D-(\d+)\t(\S+\t.*)$", found, re.M))
    assert len(wanted) == len(sources)
    for i, translation in enumerate(translator.translate(sources)):
        score, text = wanted[str(i)].split("\t")
        assert translation.text == text
        # The program prints bits, fairseq's unit.
        assert np.float32(score) == pytest.approx(translation.score / np.log(2), rel=2e-7)


def test_one_text_gives_one_translation(translator):
    found = translator.translate("one two", beam=4, nbest=3)
    assert isinstance(found, mae_mt.Translation) and str(found) == found.text
    assert [type(h) for h in found.nbest] == [mae_mt.Hypothesis] * 3
    scores = [hypothesis.score for hypothesis in found.nbest]
    assert scores == sorted(scores, reverse=True)
    assert found.tokens[-1] == "</s>" and found.log_probs.shape == (len(found.tokens),)
    assert found.log_probs.dtype == np.float32 and found.log_probs.flags.writeable
    assert translator.translate([]) == [] and translator.translate("").text == ""


def test_gates_are_arrays_of_probabilities(translator):
    assert translator.translate("one two").gates is None
    gates = translator.translate("one two three", gates=True).gates
    assert {"encoder.layers.0.self_attn", "decoder.layers.0.encoder_attn"} <= gates.keys()
    for values in gates.values():
        assert values.shape[1] == 4
        np.testing.assert_allclose(values.sum(axis=1), 1.0, atol=1e-5)
    page = translator.translate("one <two>", gates=True)._repr_html_()
    assert "encoder.layers.0.self_attn" in page and "<two>" not in page


def test_an_iterable_is_read_as_it_comes(translator, sources):
    wanted = [found.text for found in translator.translate(sources[:25])]
    lines = (line + "\n" for line in sources[:25])
    assert [found.text for found in translator.translate_iterable(lines, batch=7)] == wanted
    assert list(translator.translate_iterable([])) == []


def test_batches_of_tokens_are_those_of_ctranslate2(translator):
    found = translator.translate_batch(
        [["one", "two"], ["three"]], beam_size=4, num_hypotheses=2, return_scores=True
    )
    plain = translator.translate(["one two", "three"], beam=4, nbest=2)
    for result, translation in zip(found, plain):
        assert result.hypotheses == [hypothesis.tokens[:-1] for hypothesis in translation.nbest]
        assert result.scores == [hypothesis.score for hypothesis in translation.nbest]
    forced = translator.translate_batch([["one", "two"]], [["neun"]])[0]
    assert forced.hypotheses[0][0] == "neun" and forced.scores == []


def test_scores_of_given_translations(translator):
    found = translator.translate("one two three")
    scores = translator.score("one two three", found.text)
    np.testing.assert_allclose(scores, found.log_probs, atol=1e-4)
    assert [len(values) for values in translator.score(["one", "two"], ["eins", "zwei eins"])] == [2, 3]


def test_a_model_knows_its_languages_and_the_rules_of_its_text(translator, trained, sources, place):
    assert translator.languages == ("en", "de") and translator.text_rules == "none"
    # A model that says a comma for nine, and reads words in lower case and apart from punctuation.
    folder = place / "rules"
    shutil.copytree(trained.model, folder)
    dictionary = folder / "dict.tgt.txt"
    dictionary.write_text(re.sub("^neun ", ", ", dictionary.read_text(), flags=re.M))
    rules = {"tokenize": "moses", "lowercase": True}
    record = {"format": 1, "source_lang": "fr", "target_lang": "en", "rules": rules}
    (folder / "text.json").write_text(json.dumps(record))
    ruled = mae_mt.Translator(folder, device="cpu")
    assert ruled.languages == ("fr", "en") and ruled.text_rules == "tokenised (Moses), lower case"

    found = zip(sources, translator.translate(sources))
    line, tokens = next((line, found.text) for line, found in found if " neun " in found.text)
    tokens = tokens.replace("neun", ",")
    plain = tokens.replace(" ,", ",")
    assert ruled.translate(line.upper()).text == plain
    assert ruled.translate(line, tokenized=True).text == tokens
    # Without the rules, capitals are words that the model does not know.
    unknown = " ".join("?" for _ in line.split())
    capitals = ruled.translate(line.upper(), tokenized=True).text
    assert capitals == ruled.translate(unknown, tokenized=True).text
    for tokenized, wanted in ((False, plain), (True, tokens)):
        found = ruled.translate_iterable([f"{line}\n"], tokenized=tokenized)
        assert [translation.text for translation in found] == [wanted]
    scores = ruled.score(line.upper(), plain.upper())
    np.testing.assert_array_equal(scores, ruled.score(line, tokens, tokenized=True))
    assert len(ruled.score(line, plain, tokenized=True)) == len(plain.split()) + 1

    # An old folder, or one of another program, tells nothing.
    (folder / "text.json").unlink()
    assert mae_mt.Translator(folder, device="cpu").languages is None
    (folder / "text.json").write_text(json.dumps({**record, "target_lang": "klingon"}))
    with pytest.raises(mae_mt.Error, match="text.json: no rules for the language `klingon`"):
        mae_mt.Translator(folder, device="cpu")


def test_threads_share_a_translator(translator, sources):
    wanted = [found.text for found in translator.translate(sources[:100])]
    results: dict[int, list[str]] = {}

    def work(number: int) -> None:
        results[number] = [found.text for found in translator.translate(sources[:100])]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(results[number] == wanted for number in range(4))


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda t: t.translate("one", beam=0), ValueError, "beam"),
        (lambda t: t.translate("one", nbest=9), ValueError, "nbest"),
        (lambda t: t.translate("one", experts="best"), ValueError, "experts"),
        (lambda t: t.translate("one", experts="17"), ValueError, "17"),
        (lambda t: t.translate(["one", 2]), TypeError, "text 1"),
        (lambda t: t.translate(5), TypeError, "not iterable"),
        (lambda t: t.translate(["one", "two"], prefix=["eins"]), ValueError, "1 were given for 2"),
        (lambda t: t.score(["one"], []), ValueError, "translations"),
        (lambda t: mae_mt.Translator("nowhere/at/all"), FileNotFoundError, "nowhere"),
        (lambda t: mae_mt.Translator(".", device="tpu"), ValueError, "tpu"),
        (lambda t: mae_mt.Translator(".", device="cpu", compute_type="int3"), ValueError, "int3"),
    ],
)
def test_bad_input_is_an_exception_that_says_what_is_wrong(translator, call, kind, words):
    with pytest.raises(kind, match=re.escape(words)):
        call(translator)


def test_a_very_long_line_is_cut_and_that_is_said(translator):
    found = translator.translate("one " * 250_000)
    assert found.cut_tokens > 0 and found.text


def test_a_folder_may_vanish_once_a_model_is_loaded(trained, place):
    shutil.copytree(trained.model, place / "copy")
    translator = mae_mt.Translator(place / "copy", device="cpu")
    shutil.rmtree(place / "copy")
    assert translator.translate("one two").text


def test_a_fork_is_told_to_load_the_model_anew(translator):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            translator.translate("one")
            answer = b"no exception"
        except mae_mt.Error as error:
            answer = str(error).encode()
        os.write(write, answer)
        os._exit(0)
    os.waitpid(child, 0)
    assert b"forked" in os.read(read, 1000)


def test_many_calls_leave_no_memory_behind(translator):
    def resident() -> int:
        with open("/proc/self/statm") as statistics:
            return int(statistics.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    call = lambda: translator.translate("one", beam=1, gates=True).gates
    for _ in range(300):
        call()
    before = resident()
    for _ in range(1500):
        call()
    assert resident() - before < 8 << 20


def test_number_types_of_inference(trained, translator, sources, place, data):
    texts = [found.text for found in translator.translate(sources[:200])]
    for compute_type in ("bfloat16", "int8"):
        other = mae_mt.Translator(trained.model, device="cpu", compute_type=compute_type)
        same = sum(text == found.text for text, found in zip(texts, other.translate(sources[:200])))
        assert same >= 190, (compute_type, same)
    mae("quantize", trained.model, "--out", place / "int8", check=True)
    stored = mae_mt.Translator(place / "int8", device="cpu")
    assert [found.text for found in stored.translate(sources[:20])] == [
        found.text for found in other.translate(sources[:20])
    ]
    with pytest.raises(ValueError, match="trained in float32"):
        mae_mt.train(data, "multi30k-base", save_dir=place / "no", device="cpu", compute_type="int8")
