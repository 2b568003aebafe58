"""Lists the flags of fairseq's commands from its source, without importing it.

    pip download fairseq==0.12.2 --no-deps --no-binary :all: && tar xzf fairseq-0.12.2.tar.gz
    python tools/fairseq_flags.py fairseq-0.12.2 > tools/fairseq_flags.tsv

A line has a command, a flag, the number of its values (0, 1, ? or +) and its other names. Tasks are
translation and language_modeling; models are transformer and transformer_lm, with the criteria,
optimisers, schedules, tokenisers, segmentations and scorers that fairseq's commands offer with them.
average_checkpoints.py is not in the package; its flags are written here.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
SOURCES = [
    "dataclass/configs.py",
    "tasks/translation.py",
    "tasks/language_modeling.py",
    "models/transformer/transformer_config.py",
    "models/transformer_lm.py",
    *(f"criterions/{name}.py" for name in ("label_smoothed_cross_entropy", "cross_entropy", "adaptive_loss")),
    *(f"optim/{name}.py" for name in ("adam", "nag", "bmuf")),
    *(
        f"optim/lr_scheduler/{name}.py"
        for name in ("inverse_square_root_schedule", "cosine_lr_scheduler", "fixed_schedule", "polynomial_decay_schedule")
    ),
    *(f"data/encoders/{path.name}" for path in sorted((ROOT / "fairseq/data/encoders").glob("*.py"))),
    *(f"scoring/{path.name}" for path in sorted((ROOT / "fairseq/scoring").glob("*.py"))),
]
CLASSES = {}
for name in SOURCES:
    for node in ast.parse((ROOT / "fairseq" / name).read_text()).body:
        if isinstance(node, ast.ClassDef):
            CLASSES[node.name] = node


def text(node):
    return ast.unparse(node) if node is not None else ""


def metadata(call):
    """The metadata of `field(…)` as a dictionary of expressions."""
    if isinstance(call, ast.Call) and text(call.func).endswith("field"):
        for keyword in call.keywords:
            if keyword.arg == "metadata" and isinstance(keyword.value, ast.Dict):
                return {key.value: value for key, value in zip(keyword.value.keys, keyword.value.values) if isinstance(key, ast.Constant)}
    return {}


def fields(name, prefix=None):
    """Flags of a dataclass: (flag, values, aliases)."""
    found = {}
    node = CLASSES[name]
    for base in node.bases:
        if text(base) in CLASSES:
            found |= {flag: (flag, arity, aliases) for flag, arity, aliases in fields(text(base), prefix)}
    for line in node.body:
        if not isinstance(line, ast.AnnAssign):
            continue
        key, kind = line.target.id, text(line.annotation)
        if key == "_name" or key == "data" and prefix is None:
            continue
        meta = metadata(line.value)
        dashed = key.replace("_", "-")
        flag = f"--{prefix}-{dashed}" if prefix else f"--{dashed}"
        if kind in CLASSES:
            nested = fields(kind, f"{prefix}-{dashed}" if prefix else dashed if prefix == "" else None)
            found |= {flag: (flag, arity, aliases) for flag, arity, aliases in nested}
            continue
        if "argparse_const" in meta:
            arity = "?"
        else:
            arity = "0" if kind in ("bool", "Optional[bool]") else "1"
        aliases = []
        if "argparse_alias" in meta:
            alias = ast.literal_eval(meta["argparse_alias"])
            aliases.append(alias if alias.startswith("-") else f"--{alias}")
        found[flag] = (flag, arity, aliases)
    return list(found.values())


def added(path, function=None):
    """Flags of `add_argument` calls in a file, or in one function of it."""
    tree = ast.parse(path.read_text())
    if function:
        tree = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and text(node.func).endswith("add_argument")):
            continue
        names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        options = {keyword.arg: keyword.value for keyword in node.keywords}
        if not names or not names[0].startswith("-"):
            continue
        flag = next(name for name in names if name.startswith("--"))
        if text(options.get("action")).strip("'").startswith("store_"):
            arity = "0"
        elif "nargs" in options:
            arity = text(options["nargs"]).strip("'")
        else:
            arity = "1"
        found.append((flag, arity, [name for name in names if name != flag]))
    return found


options = ROOT / "fairseq/options.py"
REGISTRIES = [(f"--{name}", "1", []) for name in ("task", "criterion", "optimizer", "lr-scheduler", "tokenizer", "bpe", "scoring", "simul-type")]
ENCODERS = [
    flag
    for path in sorted((ROOT / "fairseq/data/encoders").glob("*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.ClassDef) and node.name in CLASSES and any("Dataclass" in text(base) for base in node.bases)
    for flag in fields(node.name)
]
SCORERS = [
    flag
    for path in sorted((ROOT / "fairseq/scoring").glob("*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.ClassDef) and any("Dataclass" in text(base) for base in node.bases)
    for flag in fields(node.name)
]
COMMON = fields("CommonConfig") + REGISTRIES + added(options, "get_parser") + ENCODERS + SCORERS
DATA = fields("DatasetConfig")
DISTRIBUTED = fields("DistributedTrainingConfig")
TASKS = fields("TranslationConfig") + fields("LanguageModelingConfig")
PARTS = [
    "LabelSmoothedCrossEntropyCriterionConfig", "CrossEntropyCriterionConfig", "AdaptiveLossConfig",
    "FairseqAdamConfig", "FairseqNAGConfig", "InverseSquareRootLRScheduleConfig", "CosineLRScheduleConfig",
    "FixedLRScheduleConfig", "PolynomialDecayLRScheduleConfig", "FairseqBMUFConfig", "EMAConfig",
]  # fmt: skip
TRAINING = [flag for name in PARTS for flag in fields(name)]
MODELS = fields("TransformerConfig", "") + fields("TransformerLanguageModelConfig") + [("--arch", "1", ["-a"])]
COMMANDS = {
    "preprocess": COMMON + added(options, "add_preprocess_args"),
    "train": COMMON + DATA + DISTRIBUTED + MODELS + TRAINING + TASKS + fields("OptimizationConfig") + fields("CheckpointConfig"),
    "generate": COMMON + DATA + DISTRIBUTED + TASKS + fields("GenerationConfig") + fields("CommonEvalConfig") + fields("CheckpointConfig"),
    "interactive": COMMON + DATA + DISTRIBUTED + TASKS + fields("GenerationConfig") + fields("CommonEvalConfig") + fields("InteractiveConfig") + fields("CheckpointConfig"),
    "eval-lm": COMMON + DATA + DISTRIBUTED + TASKS + fields("CommonEvalConfig") + fields("EvalLMConfig"),
    "score": added(ROOT / "fairseq_cli/score.py"),
    "average": [
        ("--inputs", "+", []), ("--output", "1", []), ("--num-epoch-checkpoints", "1", []),
        ("--num-update-checkpoints", "1", []), ("--num-best-checkpoints", "1", []), ("--checkpoint-upper-bound", "1", []),
    ],
}  # fmt: skip
for command, flags in COMMANDS.items():
    once = {}
    for flag, arity, aliases in flags:
        before = once.get(flag, (arity, []))
        once[flag] = (arity, sorted({*before[1], *aliases}))
    for flag in sorted(once):
        arity, aliases = once[flag]
        print("\t".join([command, flag, arity, " ".join(aliases)]).rstrip())
