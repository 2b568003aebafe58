"""Studies from Python: run, continued, looked at."""

import pytest

import mae_mt

PLAN = """title = "Two small systems"
baseline = "base"
seeds = [1, 2]
max_update = 6
[keys.model]
arch = "transformer_tiny"
encoder_layers = 1
decoder_layers = 1
encoder_embed_dim = 16
encoder_ffn_embed_dim = 16
encoder_attention_heads = 4
[keys.train]
max_tokens = 512
patience = 0
[translation]
beam = 1
draws = 1
split = "valid"
[[system]]
name = "base"
recipe = "multi30k-base"
[[system]]
name = "mae"
recipe = "multi30k-mae7"
"""


def test_a_study_is_run_in_parts_and_shown(place, data):
    plan, out, events = place / "plan.toml", place / "study", []
    plan.write_text(PLAN)
    first = mae_mt.Study.run(str(plan), out, data=data, seeds=[1], device="cpu", callback=events.append)
    assert sorted(first.missing) == ["base-2", "mae-2"]
    assert [event["run"] for event in events if event["event"] == "run_started"] == ["base-1", "mae-1"]
    logged = [event["log"]["event"] for event in events if event["event"] == "training"]
    assert "valid" in logged
    assert events[-1]["event"] == "measured"
    events.clear()
    whole = mae_mt.Study.run(str(plan), out, data=data, device="cpu", callback=events.append)
    assert [event["run"] for event in events if event["event"] == "run_started"] == ["base-2", "mae-2"]
    assert whole.missing == [] and len(whole.runs) == 4
    assert {row["system"] for row in whole.comparison["rows"]} == {"base", "mae"}
    assert "<table" in whole._repr_html_()
    again = mae_mt.Study(str(plan), out)
    assert again.comparison == whole.comparison


def test_faults_of_a_study_are_exceptions(place, data):
    plan = place / "plan.toml"
    plan.write_text(PLAN)
    with pytest.raises(ValueError, match="data is needed"):
        mae_mt.Study.run(str(plan), place / "nothing", device="cpu")
    with pytest.raises(ValueError, match="no system `bass`"):
        mae_mt.Study.run(str(plan), place / "nothing", data=data, only=["bass"], device="cpu")
    with pytest.raises(ValueError, match="seeds"):
        mae_mt.Study.run(str(plan), place / "nothing", data=data, keys={"train.seed": 7}, device="cpu")
    with pytest.raises(ValueError, match="no study is called `two-task`"):
        mae_mt.Study.run("two-task", place / "nothing", device="cpu")
    assert not (place / "nothing").exists()

    def stop(event):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        mae_mt.Study.run(str(plan), place / "stopped", data=data, device="cpu", callback=stop)
