"""Runs the graphs of `mae export onnx` in onnxruntime and compares them with `mae generate`.

    python tools/onnx_check.py MAE random              models of random weights: every system and every kind of gate
    python tools/onnx_check.py MAE MODEL SOURCE        a model folder and a text (at most --lines lines of it)

For each model it prints the largest difference of log-probabilities of given translations, computed step by step in
batches of sentences of different lengths (1e-4 is asked for), and the number of equal translations of greedy search and of
beam 5. Exits with 1 if anything differs. Needs onnx, onnxruntime, numpy, safetensors (run with 1.23.2, 1.31.1, 2.4.6, 0.8.0).
"""
import argparse, json, math, random, shutil, sys, tempfile
from pathlib import Path

if sys.argv[1:] == ["--ready"]:
    import numpy, onnx, onnxruntime, safetensors.numpy
    sys.exit(0)

import numpy as np
import onnx
import onnxruntime as ort

from program import Program

ap = argparse.ArgumentParser()
ap.add_argument("mae")
ap.add_argument("model")
ap.add_argument("source", nargs="?", type=Path)
ap.add_argument("--lines", type=int, default=64)
args = ap.parse_args()
WORK = Path(tempfile.mkdtemp())
mae = Program(args.mae, WORK)
random.seed(3)
LIMIT = 20


def generate(model, lines, *more):
    return mae.generate(model, lines, "--no-bpe", *more)


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


class Exported:
    """The three graphs of a folder."""

    def __init__(self, folder):
        self.facts = json.loads((folder / "model.json").read_text())
        self.symbols = [["<s>", "<pad>", "</s>", "<unk>"] + [line.rsplit(" ", 1)[0] for line in
                        (folder / f"dict.{side}.txt").read_text().splitlines()] for side in ("src", "tgt")]
        self.ids = [{symbol: i for i, symbol in enumerate(symbols)} for symbols in self.symbols]
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        for name in "encoder", "first_step", "step":
            onnx.checker.check_model(str(folder / f"{name}.onnx"), full_check=True)
        self.encoder, self.first, self.later = (
            ort.InferenceSession(str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])
            for name in ("encoder", "first_step", "step"))

    def encode(self, lines):
        """Ids padded on the right, their mask, and the encoder's output."""
        end = [2] if self.facts["source_end"] else []
        rows = [[self.ids[0].get(word, 3) for word in line.split()] + end for line in lines]
        longest = max(map(len, rows))
        ids = np.array([row + [1] * (longest - len(row)) for row in rows], np.int64)
        mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows], np.int64)
        return mask, self.encoder.run(None, {"input_ids": ids, "attention_mask": mask})[0]

    def begin(self, mask, memory, token):
        return self.take(self.first, {"token": token, "attention_mask": mask, "memory": memory}, {})

    def step(self, mask, state, token):
        return self.take(self.later, {"token": token, "attention_mask": mask, **state}, state)

    @staticmethod
    def take(session, inputs, state):
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(None, inputs)))
        logits = found.pop("logits")
        return logits, {**state, **{name.replace("present.", "past."): value for name, value in found.items()}}


def given(model, lines, targets):
    """Log-probabilities of translations, all sentences in one batch."""
    rows = [[model.ids[1].get(word, 3) for word in line.split()] + [2] for line in targets]
    mask, memory = model.encode(lines)
    token, state, out = np.full(len(rows), model.facts["decoder_start"], np.int64), None, [[] for _ in rows]
    for t in range(max(map(len, rows))):
        logits, state = model.begin(mask, memory, token) if t == 0 else model.step(mask, state, token)
        scores = log_softmax(logits)
        for i, row in enumerate(rows):
            if t < len(row):
                out[i].append(scores[i, row[t]])
        token = np.array([row[min(t, len(row) - 1)] for row in rows], np.int64)
    return out


def search(model, line, beam):
    """fairseq's beam search for one sentence, with caches."""
    mask, memory = model.encode([line])
    live, done = [([], 0.0)], []
    logits, state = model.begin(mask, memory, np.array([model.facts["decoder_start"]], np.int64))
    for step in range(LIMIT + 1):
        table = log_softmax(logits)
        table[:, 1] = -np.inf
        if step == 0:
            table[:, 2] = -np.inf
        if step == LIMIT:
            keep = table[:, 2].copy()
            table[:] = -np.inf
            table[:, 2] = keep
        sums = table + np.array([score for _, score in live])[:, None]
        best = np.argsort(-sums, axis=None, kind="stable")[: 2 * beam]
        picked = [(int(i) // table.shape[1], int(i) % table.shape[1], float(sums.flat[i])) for i in best]
        done += [(score / (step + 1), live[row][0]) for row, token, score in picked[:beam] if token == 2 and score > -1e30]
        if len(done) >= beam or step == LIMIT:
            break
        going = [(row, token, score) for row, token, score in picked if token != 2][:beam]
        parents = np.array([row for row, _, _ in going])
        live = [(live[row][0] + [token], score) for row, token, score in going]
        state = {name: value[parents] for name, value in state.items()}
        logits, state = model.step(np.repeat(mask, len(going), 0), state, np.array([token for _, token, _ in going], np.int64))
    return max(done[:beam], key=lambda pair: pair[0])[1]


def check(name, folder, lines, targets, steps_only=False):
    out = WORK / "onnx"
    shutil.rmtree(out, ignore_errors=True)
    mae("export", "onnx", folder, "--out", out)
    model = Exported(out)
    path = WORK / "target.txt"
    path.write_text("".join(line + "\n" for line in targets))
    scored = generate(folder, lines, "--target", path, "--score-reference")
    ours = [case["hypotheses"][0]["logprobs"] if "hypotheses" in case else case["logprobs"] for case in scored]
    worst = 0.0
    # Gates over a whole translation read what a step cannot know.
    for at in () if steps_only else range(0, len(lines), 16):
        for a, b in zip(ours[at:at + 16], given(model, lines[at:at + 16], targets[at:at + 16]), strict=True):
            worst = max([worst] + [abs(x - y) for x, y in zip(a, b, strict=True)])
    equal = {}
    for beam in 1, 5:
        found = generate(folder, lines, "--beam", beam, "--max-len-a", 0, "--max-len-b", LIMIT)
        theirs = [[model.symbols[1][i] for i in search(model, line, beam)] for line in lines]
        wanted = [[token for token in case["hypotheses"][0]["tokens"] if token != "</s>"] for case in found]
        equal[beam] = sum(a == b for a, b in zip(wanted, theirs))
    scores = "" if steps_only else f"log-probabilities differ by at most {worst:.1e}; "
    print(f"{name}: {scores}of {len(lines)} translations, equal: "
          f"greedy {equal[1]}, beam 5 {equal[5]}", flush=True)
    return worst < 1e-4 and equal[1] == equal[5] == len(lines)


def random_model(folder, width=32, inner=40, heads=4, layers=2, dropped=1, hidden=12, types=(37, 29), **keys):
    """Writes a model folder of random weights; `keys` are lines of its configuration."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(5)
    mixture = {"system": "mae", **keys.pop("mixture", {})}
    inside = heads * keys.get("head_dim", width // heads)
    shapes = {"encoder.embed_tokens.weight": (types[0], width), "decoder.embed_tokens.weight": (types[1], width)}
    if keys.get("share_embeddings") == "none":
        shapes["decoder.embed_out"] = (types[1], width)
    if keys.get("output_bias"):
        shapes["decoder.output_projection.bias"] = (types[1],)
    linear = lambda name, rows, cols: shapes.update({f"{name}.weight": (rows, cols), f"{name}.bias": (rows,)})
    norm = lambda name: shapes.update({f"{name}.weight": (width,), f"{name}.bias": (width,)})
    for side, parts in ("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"]):
        if keys.get("positions") == "table":
            shapes[f"{side}.embed_positions.weight"] = (64, width)
        for layer in range(layers):
            at = f"{side}.layers.{layer}"
            for part in parts:
                for p in "qkv":
                    linear(f"{at}.{part}.{p}_proj", inside, width)
                linear(f"{at}.{part}.out_proj", width, inside)
                norm(f"{at}.{part}_layer_norm")
                gate = f"{at}.{part}.gate"
                if mixture["system"] in ("mae", "nobcd"):
                    norm(f"{gate}.norm")
                    shapes.update({f"{gate}.norm.running_mean": (width,), f"{gate}.norm.running_var": (width,)})
                    linear(f"{gate}.fc1", hidden, width)
                    linear(f"{gate}.fc2", math.comb(heads, dropped), hidden)
                if mixture["system"] == "sigmoid":
                    linear(f"{gate}.proj", heads, width)
                if mixture["system"] == "moh":
                    for part, rows in ("shared", 1), ("routed", heads - 1), ("between", 2):
                        shapes[f"{gate}.{part}.weight"] = (rows, width)
            linear(f"{at}.fc1", inner, width)
            linear(f"{at}.fc2", width, inner)
            norm(f"{at}.final_layer_norm")
        if keys.get("norm") == "pre":
            norm(f"{side}.layer_norm")
    values = {}
    for name, shape in shapes.items():
        if name.endswith("running_var"):
            value = rng.uniform(0.2, 2, shape)
        elif len(shape) == 1:
            value = rng.normal(1.0 if "norm.weight" in name else 0.0, 0.2, shape)
        else:
            value = rng.normal(0, (4.0 if ".gate." in name else 1.3) * shape[1] ** -0.5, shape)
        values[name] = value.astype(np.float32)
    folder.mkdir()
    save_file(values, folder / "model.safetensors")
    show = lambda value: json.dumps(value)
    config = {"encoder_layers": layers, "decoder_layers": layers, "encoder_embed_dim": width, "encoder_ffn_embed_dim": inner,
              "encoder_attention_heads": heads, "max_positions": 64, "share_embeddings": "decoder", **keys}
    mixture = {"dropped_heads": dropped, "gate_hidden": hidden, **mixture}
    (folder / "config.toml").write_text("format = 1\n\n[model]\n" + "".join(f"{k} = {show(v)}\n" for k, v in config.items())
                                        + "\n[model.mixture]\n" + "".join(f"{k} = {show(v)}\n" for k, v in mixture.items()))
    for side, count in zip(("src", "tgt"), types):
        (folder / f"dict.{side}.txt").write_text("".join(f"{side[0]}{i} 1\n" for i in range(4, count)))


CASES = {
    "BASE": dict(mixture={"system": "base"}),
    "uni-MAE": dict(mixture={"system": "uniform"}),
    "MAE": dict(),
    "MAE, two heads left out": dict(dropped=2),
    "MAE, gates over whole translations": dict(mixture={"decoder_gate": "whole"}),
    "MAE, window of 3": dict(mixture={"gate_window": 3}),
    "MAE, cross gate over the source": dict(mixture={"cross_gate": "source"}),
    "MAE, gates by position": dict(mixture={"gate_input": "position"}),
    "NoBCD, pre-norm, GELU": dict(norm="pre", activation="gelu", mixture={"system": "nobcd"}),
    "sigmoid gates": dict(mixture={"system": "sigmoid", "gate_input": "position"}),
    "MoH": dict(mixture={"system": "moh", "gate_input": "position", "shared_heads": 1}),
    "Marian's choices": dict(activation="swish", positions="marian", decoder_start="pad", output_bias=True),
    "other choices": dict(positions="table", share_embeddings="none", no_scale_embedding=True, decoder_start="bos",
                          source_end="none", head_dim=5),
}


def main():
    good = True
    if args.model == "random":
        for name, keys in CASES.items():
            folder = WORK / "model"
            shutil.rmtree(folder, ignore_errors=True)
            random_model(folder, **keys)
            line = lambda prefix, types: " ".join(f"{prefix}{random.randrange(4, types)}" for _ in range(random.randint(1, 12)))
            good &= check(name, folder, [line("s", 37) for _ in range(args.lines)], [line("t", 29) for _ in range(args.lines)],
                          "whole" in keys.get("mixture", {}).values())
    else:
        folder = Path(args.model)
        lines = args.source.read_text().splitlines()[: args.lines]
        if (folder / "bpe.codes").exists():
            path = WORK / "lines.txt"
            path.write_text("".join(line + "\n" for line in lines))
            lines = mae("apply-bpe", "-c", folder / "bpe.codes", path).splitlines()
        found = generate(folder, lines, "--beam", 1)
        targets = [" ".join(token for token in case["hypotheses"][0]["tokens"] if token != "</s>") for case in found]
        good &= check(folder.name, folder, lines, targets)
    shutil.rmtree(WORK)
    print("the graphs compute what mae computes" if good else "the graphs differ")
    sys.exit(0 if good else 1)


main()
