"""Training from Python: events, Ctrl-C, faults; parameters of the result."""

import json
import os
import signal
import threading

import numpy as np
import pytest

import mae_mt
from conftest import TINY


def test_a_run_is_trained_and_can_be_looked_at(trained, translator):
    assert trained.updates == 120 and trained.parameters > 1000
    assert "<svg" in trained._repr_html_()
    assert translator.translate("one two").text
    parameters = mae_mt.load_parameters(trained.model)
    assert all(values.dtype == np.float32 for values in parameters.values())
    assert parameters["encoder.layers.0.fc1.weight"].shape == (64, 32)


def test_events_come_as_dicts_and_a_fault_of_the_callback_ends_the_run(place, data):
    events = []

    def callback(event):
        events.append(event)
        if event["event"] == "train":
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        mae_mt.train(
            data, "multi30k-base", save_dir=place / "stopped", device="cpu", keys=TINY, max_update=5000,
            max_tokens=512, log_interval=5, callback=callback,
        )
    assert events[-1]["event"] == "train" and events[-1]["loss"] > 0
    assert (place / "stopped" / "checkpoint_last").exists()


def test_ctrl_c_saves_the_run_and_the_same_call_continues_it(place, data):
    keys = dict(save_dir=place / "interrupted", device="cpu", keys=TINY, max_tokens=512, log_interval=5)

    pressed = []

    def interrupt(event):
        if event["event"] == "train" and not pressed:
            pressed.append(event)
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        mae_mt.train(data, "multi30k-base", max_update=5000, callback=interrupt, **keys)
    folder = place / "interrupted"
    assert (folder / "checkpoint_last").exists()
    # The log need not name the last update.
    done = json.loads((folder / "checkpoint_last" / "state.json").read_text())["counters"]["updates"]
    run = mae_mt.train(data, "multi30k-base", max_update=done + 3, **keys)
    assert run.updates == done + 3


def test_wrong_keys_and_recipes_are_value_errors(place, data):
    with pytest.raises(ValueError, match="max_epochs"):
        mae_mt.train(data, "multi30k-base", save_dir=place / "wrong", max_epochs=3)
    with pytest.raises(ValueError, match="multi31k"):
        mae_mt.train(data, "multi31k", save_dir=place / "wrong")
    with pytest.raises(TypeError, match="max_epoch"):
        mae_mt.train(data, "multi30k-base", save_dir=place / "wrong", max_epoch=object())
    with pytest.raises((OSError, mae_mt.Error)):
        mae_mt.train(place / "nothing", "multi30k-base", save_dir=place / "wrong", device="cpu")
    assert not (place / "wrong" / "checkpoint_last").exists()
