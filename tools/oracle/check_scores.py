"""Compares the oracle's scores with those of `mae generate ... --score-reference --jsonl`.

    python check_scores.py EXPECTED.jsonl ACTUAL.jsonl [--tolerance 1e-4]

Each line is an object with "id" and "logprobs" (natural logarithms, one per target token, eos included); other fields are
ignored, and so is the order of the lines. ACTUAL may be `-` for standard input. Exits with 1 on a difference above the
tolerance, a missing, extra or repeated id, another number of tokens, or a value that is not a finite number.
"""
import argparse
import json
import math
import sys


def read(path):
    out = {}
    with sys.stdin if path == "-" else open(path) as f:
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                key, values = row["id"], row["logprobs"]
            except (ValueError, KeyError, TypeError) as e:
                sys.exit(f"{path}:{number}: not an object with id and logprobs ({e!r})")
            if key in out:
                sys.exit(f"{path}:{number}: id {key} appears twice")
            out[key] = values
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("expected"); ap.add_argument("actual")
    ap.add_argument("--tolerance", type=float, default=1e-4)
    a = ap.parse_args()
    expected, actual = read(a.expected), read(a.actual)
    if not expected:
        sys.exit(f"{a.expected}: no sentences")
    if expected.keys() != actual.keys():
        missing, extra = sorted(expected.keys() - actual.keys()), sorted(actual.keys() - expected.keys())
        sys.exit(f"{len(expected)} sentences expected, {len(actual)} found; missing ids {missing[:10]}, extra ids {extra[:10]}")
    worst, where = 0.0, None
    for i, want in expected.items():
        got = actual[i]
        if len(got) != len(want):
            sys.exit(f"sentence {i}: {len(want)} tokens expected, {len(got)} found")
        for j, (x, y) in enumerate(zip(want, got)):
            if not isinstance(y, (int, float)) or not math.isfinite(y):
                sys.exit(f"sentence {i}, token {j}: {y!r} is not a finite number")
            if abs(x - y) > worst:
                worst, where = abs(x - y), (i, j, x, y)
    print(f"{len(expected)} sentences, {sum(map(len, expected.values()))} tokens: max abs difference {worst:.3g}")
    if worst > a.tolerance:
        i, j, x, y = where
        sys.exit(f"above {a.tolerance:g}: sentence {i}, token {j}: expected {x:.6f}, found {y:.6f}")


if __name__ == "__main__":
    main()
