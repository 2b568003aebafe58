"""Holds imports and exports of checkpoints against fairseq itself.

    python tools/fairseq_check.py MAE translation    transformer_iwslt_de_en (4 heads) of random weights in, and out again
    python tools/fairseq_check.py MAE lm             transformer_lm_wiki103 (adaptive input and softmax) of random weights in
    python tools/fairseq_check.py MAE expert MODEL   one expert of a model with gates out, by `mae export fairseq --expert 1`

Needs torch and fairseq 0.12.2 (run with torch 2.11.0). fairseq has wheels for Python 3.8 only, but it is Python: unpack the
wheel into a folder FAIRSEQ, and beside it omegaconf 2.0.6, hydra-core 1.0.7, antlr4-python3-runtime 4.8, bitarray,
sacrebleu, portalocker, tabulate and lxml (`pip install --no-deps --target FAIRSEQ …`); from Python 3.11 on also a copy of the
standard library's dataclasses.py without its check of mutable defaults. Then PYTHONPATH=FAIRSEQ.
"""
import argparse, json, random, shutil, sys, tempfile
from pathlib import Path

import torch

from program import Program

ap = argparse.ArgumentParser()
ap.add_argument("mae")
ap.add_argument("what", choices=["translation", "lm", "expert"])
ap.add_argument("model", nargs="?", type=Path)
ap.add_argument("--lines", type=int, default=64)
args = ap.parse_args()
WORK = Path(tempfile.mkdtemp())
mae = Program(args.mae, WORK)
random.seed(11)
torch.manual_seed(5)
torch.set_num_threads(1)
LIMIT = 12

# fairseq reads its checkpoints with `torch.load`, which since torch 2.6 refuses the options (`argparse.Namespace`) in them.
load = torch.load
torch.load = lambda *words, **named: load(*words, **{"weights_only": False, **named})

from fairseq import checkpoint_utils, options  # noqa: E402
from fairseq.data import Dictionary  # noqa: E402
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY  # noqa: E402
from fairseq.sequence_generator import SequenceGenerator  # noqa: E402


def generate(model, lines, *more):
    return mae.generate(model, lines, "--no-bpe", *more)


def scores(model, lines, targets):
    path = WORK / "target.txt"
    path.write_text("".join(line + "\n" for line in targets))
    found = generate(model, lines, "--target", path, "--score-reference")
    return [case["hypotheses"][0]["logprobs"] if "hypotheses" in case else case["logprobs"] for case in found]


def worst_of(ours, theirs):
    return max(abs(a - b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True))


def dictionary(prefix, types):
    made = Dictionary()
    for i in range(types - 4):
        made.add_symbol(f"{prefix}{i}", n=types - i)
    return made


class Task:
    """What models ask of a task."""

    def __init__(self, source, target):
        self.source_dictionary, self.target_dictionary, self.dictionary, self.output_dictionary = source, target, target, target


def build(arch, task, **given):
    namespace = argparse.Namespace(arch=arch, **given)
    ARCH_CONFIG_REGISTRY[arch](namespace)
    model = ARCH_MODEL_REGISTRY[arch].build_model(namespace, task).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() == 2:
                value.normal_(0, 1.4 * value.shape[1] ** -0.5)
            else:
                value.normal_(1.0 if "layer_norm.weight" in name else 0.0, 0.1)
    return namespace, model


def their_scores(model, dictionaries, lines, targets):
    out = []
    for line, target in zip(lines, targets):
        source = dictionaries[0].encode_line(line, add_if_not_exist=False).long()[None]
        wanted = dictionaries[1].encode_line(target, add_if_not_exist=False).long()
        previous = torch.cat([wanted[-1:], wanted[:-1]])[None]
        with torch.no_grad():
            logits = model(source, torch.tensor([source.shape[1]]), previous)[0][0]
        out.append(logits.float().log_softmax(-1)[range(len(wanted)), wanted].tolist())
    return out


def their_search(model, dictionaries, lines):
    generator = SequenceGenerator([model], dictionaries[1], beam_size=5, max_len_a=0, max_len_b=LIMIT)
    out = []
    for line in lines:
        source = dictionaries[0].encode_line(line, add_if_not_exist=False).long()[None]
        sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([source.shape[1]])}}
        with torch.no_grad():
            best = generator.generate([model], sample)[0][0]["tokens"].tolist()
        out.append([dictionaries[1][i] for i in best if i != 2])
    return out


def compare(name, folder, model, dictionaries, lines, targets):
    worst = worst_of(scores(folder, lines, targets), their_scores(model, dictionaries, lines, targets))
    found = generate(folder, lines, "--beam", 5, "--max-len-a", 0, "--max-len-b", LIMIT)
    ours = [[token for token in case["hypotheses"][0]["tokens"] if token != "</s>"] for case in found]
    equal = sum(a == b for a, b in zip(ours, their_search(model, dictionaries, lines)))
    print(f"{name}: log-probabilities differ by at most {worst:.1e}; {equal} of {len(lines)} hypotheses of beam 5 are equal",
          flush=True)
    return worst < 1e-4 and equal == len(lines)


def text(prefix, types, longest=12):
    return [" ".join(f"{prefix}{random.randrange(types - 4)}" for _ in range(random.randint(1, longest)))
            for _ in range(args.lines)]


def exported(folder, *more):
    """A model folder as fairseq's own loader reads what `mae export fairseq` writes of it."""
    out = WORK / "fairseq"
    shutil.rmtree(out, ignore_errors=True)
    mae("export", "fairseq", folder, "-s", "de", "-t", "en", "--out", out, *more)
    [model], _, task = checkpoint_utils.load_model_ensemble_and_task([str(out / "model.pt")], arg_overrides={"data": str(out)})
    return model.eval(), [task.source_dictionary, task.target_dictionary]


def check_translation():
    types = 8848, 6632
    dictionaries = [dictionary("s", types[0]), dictionary("t", types[1])]
    namespace, model = build("transformer_iwslt_de_en", Task(*dictionaries), share_decoder_input_output_embed=True)
    namespace.task, namespace.source_lang, namespace.target_lang = "translation", "de", "en"
    checkpoint = WORK / "checkpoint"
    checkpoint.mkdir()
    for language, words in zip(("de", "en"), dictionaries):
        words.save(str(checkpoint / f"dict.{language}.txt"))
    torch.save({"args": namespace, "model": model.state_dict(), "extra_state": {"epoch": 1}}, checkpoint / "model.pt")
    folder = WORK / "model"
    mae("import", "fairseq", checkpoint / "model.pt", "--dicts", checkpoint, "--out", folder)
    lines, targets = text("s", types[0]), text("t", types[1])
    good = compare("fairseq's model, imported", folder, model, dictionaries, lines, targets)
    again, dictionaries = exported(folder)
    # `fc1_weight` and such are copies for torch's own encoder layer, which fairseq fills when it loads a checkpoint.
    copies = "in_proj_weight", "in_proj_bias", "out_proj_weight", "out_proj_bias", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"
    before = {name: value for name, value in model.named_parameters() if not name.endswith(copies)}
    after = dict(again.named_parameters())
    same = sum(torch.equal(value, after[name]) for name, value in before.items())
    print(f"the exported checkpoint, loaded by fairseq: {same} of {len(before)} parameters are equal", flush=True)
    good &= same == len(before)
    return good & compare("fairseq's model, imported and exported", folder, again, dictionaries, lines, targets)


def check_expert():
    base = WORK / "base"
    mae("convert", args.model, "--system", "base", "--expert", 1, "--out", base)
    model, dictionaries = exported(args.model, "--expert", 1)
    words = [[words[i] for i in range(4, len(words))] for words in dictionaries]
    line = lambda words: " ".join(random.choices(words, k=random.randint(1, 12)))
    lines, targets = ([line(side) for _ in range(args.lines)] for side in words)
    return compare("one expert, exported", base, model, dictionaries, lines, targets)


def check_lm():
    types = 267744
    words = dictionary("w", types)
    namespace, model = build("transformer_lm_wiki103", Task(words, words), adaptive_softmax_cutoff="20000,60000",
                             tokens_per_sample=512, max_target_positions=512)
    namespace.task, namespace.data = "language_modeling", ""
    with torch.no_grad():
        # Log-probabilities of a model of random weights would be as low as -2,300, of which f32 leaves three decimals. Smaller
        # tables make them those of a flat distribution, about -12.
        for name, value in model.named_parameters():
            if "embed_tokens" in name or "adaptive_softmax" in name:
                value.mul_(0.1)
    checkpoint = WORK / "checkpoint"
    checkpoint.mkdir()
    words.save(str(checkpoint / "dict.txt"))
    torch.save({"args": namespace, "model": model.state_dict()}, checkpoint / "model.pt")
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    folder = WORK / "lm"
    mae("import", "fairseq", checkpoint / "model.pt", "--dicts", checkpoint, "--out", folder)
    (checkpoint / "model.pt").unlink()
    worst = lowest = 0.0
    for number in range(4):
        # Words of all bands.
        line = " ".join(f"w{random.choice([random.randrange(1000), random.randrange(types - 4)])}" for _ in range(40))
        wanted = words.encode_line(line, add_if_not_exist=False).long()
        with torch.no_grad():
            features = model(torch.cat([wanted[-1:], wanted[:-1]])[None])
            table = model.get_normalized_probs(features, log_probs=True, sample={"target": wanted[None]})[0]
        (WORK / "line.txt").write_text(line + "\n")
        out = WORK / f"scores{number}.jsonl"
        mae("eval-lm", folder, "--text", WORK / "line.txt", "--device", "cpu", "--log-probs", out)
        ours = json.loads(out.read_text().splitlines()[0])["logprobs"]
        theirs = table[range(len(wanted)), wanted].tolist()
        worst = max(worst, worst_of([ours], [theirs]))
        lowest = min(lowest, *theirs)
    print(f"fairseq's adaptive language model, imported: log-probabilities down to {lowest:.0f} differ by at most {worst:.1e}")
    return worst < 1e-4


good = globals()[f"check_{args.what}"]()
shutil.rmtree(WORK)
sys.exit(0 if good else 1)
