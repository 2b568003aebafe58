#!/usr/bin/env python3
"""A month's worth of small accidents: kills, mutants, long sessions and power cuts. Prints a table.

    python3 tools/reliability.py target/release/mae                  # everything, at full length (hours on two cores)
    python3 tools/reliability.py target/release/mae --scale 0.1      # a tenth of it
    python3 tools/reliability.py target/release/mae --only kills power
    for n in $(seq 12); do python3 tools/reliability.py target/release/mae --scale 0.0834 --seed $n & done   # on 12 cores

| part | what happens | what must hold |
|---|---|---|
| kills | a training run is killed (SIGKILL) at a random moment, 2,000 times | it resumes; its last bits are those of a run that nobody killed |
| mutants | 10,000 mutated copies of every kind of file are read | an answer or an error in words: no panic, no signal, no hang, no gigabytes |
| lines | 200,000 lines go through `mae interactive` | as many come out, and memory does not grow |
| power | an ext4 image is copied in mid-run, mounted and resumed from, 50 times; needs root | every copy resumes |

Needs nothing but Python and the program. Everything happens in a temporary folder.
"""
import argparse, hashlib, json, os, random, re, resource, shutil, signal, subprocess, sys, tempfile, threading, time
from collections import Counter
from pathlib import Path

RECIPE = """[model]
arch = "transformer_tiny"
encoder_layers = 1
decoder_layers = 1
encoder_embed_dim = 16
encoder_ffn_embed_dim = 16
encoder_attention_heads = 4
max_positions = 64
[model.mixture]
system = "mae"
gate_hidden = 8
[train]
lr = 1e-3
warmup_updates = 10
max_tokens = 100
gate_every_updates = 5
memory_check = false
save_interval_updates = 3
keep_interval_updates = 2
log_interval = 1
"""
LIMIT = 4 << 30  # bytes of address space of a reader
MEMORY = 1 << 30  # bytes that a reader of a small file may use


class Place:
    """A folder with a corpus, a binarised folder and a trained model."""

    def __init__(self, mae, home, seed):
        self.mae, self.home, self.seed = str(Path(mae).resolve()), Path(home), seed
        words = "haus hund tag kind ja nein ein zwei".split()
        rng = random.Random(1)
        for split, count in (("train", 120), ("valid", 12)):
            for lang in ("de", "en"):
                text = "".join(" ".join(rng.choices(words, k=rng.randint(1, 6))) + f" {lang}\n" for _ in range(count))
                (self.home / f"{split}.{lang}").write_text(text)
        (self.home / "tiny.toml").write_text(RECIPE)
        self.run("preprocess -s de -t en --trainpref train --validpref valid --destdir bin --bpe 20")
        self.run(self.train("model", 6))

    def train(self, folder, updates):
        return (f"train bin --recipe tiny.toml --device cpu --threads 1 --max-update {updates} --save-dir {folder}")

    def run(self, args):
        done = subprocess.run([self.mae, *args.split()], cwd=self.home, capture_output=True)
        if done.returncode:
            sys.exit(f"mae {args}: {done.stderr.decode(errors='replace')}")
        return done.stdout


def digest(run):
    """Fingerprints of all files of a run but those that hold times."""
    found = {}
    for path in sorted(Path(run).rglob("*")):
        if not path.is_file() or path.name in ("log.jsonl", "run.toml", "lock") or path.parent == Path(run):
            continue
        data = path.read_bytes()
        if path.name == "state.json":
            state = json.loads(data)
            state["window"].pop("seconds", None)
            data = json.dumps(state, sort_keys=True).encode()
        found[str(path.relative_to(run))] = hashlib.sha256(data).hexdigest()
    return found


def kills(place, count, counts):
    """Kills runs at random moments; each is resumed until it is finished."""
    updates, rng = 30, random.Random(f"kills {place.seed}")
    place.run(place.train("whole", updates))
    want, done, number = digest(place.home / "whole"), 0, 0
    begun = time.time()
    place.run(place.train("timed", updates))
    usual = time.time() - begun
    while done < count:
        number += 1
        run = place.home / f"killed-{number}"
        while done < count:
            child = subprocess.Popen([place.mae, *place.train(run.name, updates).split()], cwd=place.home,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            try:
                child.wait(rng.uniform(0, usual))
            except subprocess.TimeoutExpired:
                child.send_signal(signal.SIGKILL)
                child.wait()
                done += 1
                counts["kills"] += 1
                continue
            break
        place.run(place.train(run.name, updates))
        same = digest(run) == want
        counts["runs resumed to the same bits" if same else "RUNS THAT DIFFER"] += 1
        left = [path.name for path in run.iterdir() if path.name.endswith((".tmp", ".old"))]
        counts["LEFTOVERS"] += bool(left)
        shutil.rmtree(run)
    return not counts["RUNS THAT DIFFER"] and not counts["LEFTOVERS"]


def mutate(data, rng):
    """A damaged copy: bits, bytes, ranges, lengths, numbers."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        kind, size = rng.randrange(8), len(data)
        at = rng.randrange(size) if size else 0
        if not size or kind == 0:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 100))))
        elif kind == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            data[at] = rng.choice((0, 0xFF, 0x7F, 0x80, 0x0A, 0x20, rng.randrange(256)))
        elif kind == 3:
            del data[at:at + rng.choice((1, 8, 1000))]
        elif kind == 4:
            data[at:at] = data[at:at + rng.choice((1, 50, 1000))]
        elif kind == 5:
            data[at:at + 8] = rng.choice((0, 1 << 31, (1 << 63) - 1, (1 << 64) - 1, 1 << 40)).to_bytes(8, "little")
        elif kind == 6:
            number = rng.choice((b"99999999999", b"-1", b"nan", b"1e999", b"0"))
            found = list(re.finditer(rb"\d+", bytes(data[:20000])))
            if found:
                match = rng.choice(found)
                data[match.start():match.end()] = number
        else:
            del data[at:]
    return bytes(data)


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))


def judge(place, args, counts, name, seconds=20):
    """Runs a command on a mutant; counts how it ended."""
    child = subprocess.Popen([place.mae, *args.split()], cwd=place.home, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=limited)
    try:
        said = child.communicate(timeout=seconds)[1].decode(errors="replace")
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        counts["HANGS"] += 1
        print(f"  {name}: more than {seconds} s: {args}", file=sys.stderr)
        return False
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    if child.returncode == 0:
        counts["read"] += 1
    elif child.returncode in (1, 2) and said.strip() and "panicked" not in said:
        counts["refused in words"] += 1
    else:
        counts["PANICS OR SIGNALS"] += 1
        print(f"  {name}: exit {child.returncode}: {said[-300:]}", file=sys.stderr)
        return False
    if memory > MEMORY:
        counts["GIGABYTES"] += 1
        print(f"  {name}: {memory >> 20} MiB", file=sys.stderr)
        return False
    return True


def mutants(place, count, counts):
    """Mutates each kind of file in turn, and lets the command that reads it answer."""
    model = "model/checkpoint_last"
    generate = "generate COPY --source one.de --device cpu --threads 1 --beam 1 --max-len-b 5"
    kinds = [("config.toml", model, generate), ("text.json", model, generate), ("model.safetensors", model, generate),
             ("dict.src.txt", model, generate), ("bpe.codes", model, generate), ("state.json", model, "train bin --recipe tiny.toml --device cpu --threads 1 "
              "--max-update 6 --save-dir COPYRUN"), ("optimizer.safetensors", model, "train bin --recipe tiny.toml "
              "--device cpu --threads 1 --max-update 6 --save-dir COPYRUN"),
             ("train.de-en.de.idx", "bin", "validate MODEL --data COPY --split train --device cpu --threads 1"),
             ("train.de-en.de.bin", "bin", "validate MODEL --data COPY --split train --device cpu --threads 1"),
             ("preprocess.json", "bin", "validate MODEL --data COPY --split train --device cpu --threads 1")]
    for kind in ("hf", "ct2", "fairseq"):
        place.run(f"export {kind} base/checkpoint_last --out exported-{kind}")
        for path in sorted((place.home / f"exported-{kind}").iterdir()):
            source = "COPY/model.pt" if kind == "fairseq" else "COPY"
            kinds.append((path.name, f"exported-{kind}", f"import {kind} {source} --out imported --threads 1"))
    (place.home / "one.de").write_text("haus hund de\n")
    good = True
    for name, folder, command in kinds:
        rng, tally = random.Random(f"{name} {place.seed}"), Counter()
        source = place.home / folder
        whole = (source / name).read_bytes()
        copy = place.home / "mutated"
        for number in range(count):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.rmtree(place.home / "imported", ignore_errors=True)
            if "COPYRUN" in command:
                shutil.copytree(source, copy / "checkpoint_last")
                (copy / "checkpoint_last" / name).write_bytes(mutate(whole, rng))
            else:
                shutil.copytree(source, copy)
                (copy / name).write_bytes(mutate(whole, rng))
            args = command.replace("COPYRUN", "mutated").replace("COPY", "mutated").replace("MODEL", model)
            good &= judge(place, args, tally, f"{folder}/{name} {number}")
        print(f"  {folder}/{name}: {dict(tally)}", file=sys.stderr, flush=True)
        counts.update(tally)
        counts["kinds of files"] += 1
    return good


def lines(place, count, counts):
    """Sends lines through `mae interactive` and watches its memory."""
    args = "interactive model/checkpoint_last --device cpu --threads 1 --beam 1 --max-len-b 5 --plain"
    child = subprocess.Popen([place.mae, *args.split()], cwd=place.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
    words, rng, memory, got = "haus hund tag kind ja nein unbekannt".split(), random.Random(f"lines {place.seed}"), [], 0

    def resident():
        pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    for start in range(0, count, 500):
        text = "".join(" ".join(rng.choices(words, k=rng.randint(0, 30))) + f" {(start + i) % 1000}\n" for i in range(500))
        writer = threading.Thread(target=lambda: (child.stdin.write(text.encode()), child.stdin.flush()))
        writer.start()
        got += sum(1 for _ in range(500) if child.stdout.readline())
        writer.join()
        memory.append(resident())
    child.stdin.close()
    child.wait()
    tenth = max(1, len(memory) // 10)
    early, late = max(memory[tenth:2 * tenth] or memory), max(memory[-tenth:])
    counts["lines in"], counts["lines out"] = count, got
    counts["MiB after a fifth"], counts["MiB at the end"] = early >> 20, late >> 20
    return got == count and late < 1.1 * early + (8 << 20)


def power(place, count, counts):
    """Copies the image of a file system in mid-run, mounts the copy and resumes there."""
    if os.geteuid() or not shutil.which("mkfs.ext4"):
        counts["not run: needs root and mkfs.ext4"] += 1
        return True
    home, rng = place.home, random.Random(f"power {place.seed}")
    image, copy, disk, other = (home / name for name in ("image", "image.copy", "disk", "other"))
    disk.mkdir()
    other.mkdir()
    with open(image, "wb") as file:
        file.truncate(200 << 20)
    call = lambda *args: subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
    call("mkfs.ext4", "-q", str(image))
    call("mount", "-o", "loop", str(image), str(disk))
    child = None
    try:
        start = lambda: subprocess.Popen([place.mae, *place.train(disk / "run", 10 ** 6).split()], cwd=home,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        child = start()
        while not (disk / "run/checkpoint_last").exists():
            time.sleep(0.05)
        # The folder of the first checkpoint is on the disk once the second begins.
        time.sleep(1)
        for _ in range(count):
            time.sleep(rng.uniform(0.05, 0.6))
            # The process stands still, so that the copy is of one moment; what it has not synced is not in the image.
            child.send_signal(signal.SIGSTOP)
            while True:
                call("cp", "--sparse=always", str(image), str(copy))
                if subprocess.run(["cmp", "-s", str(image), str(copy)]).returncode == 0:
                    break
            child.send_signal(signal.SIGCONT)
            call("mount", "-o", "loop", str(copy), str(other))
            shutil.copytree(other / "run", home / "rescued")
            call("umount", str(other))
            (home / "rescued/lock").unlink(missing_ok=True)
            counts["images"] += 1
            state = home / "rescued/checkpoint_last/state.json"
            updates = json.loads(state.read_text())["counters"]["updates"] if state.exists() else 0
            resumed = subprocess.run([place.mae, *place.train("rescued", updates + 1).split()], cwd=home,
                                     capture_output=True)
            generate = "generate MODEL --source one.de --device cpu --threads 1 --beam 1 --max-len-b 5"
            models = [model for model in (home / "rescued").glob("checkpoint*") if not model.name.endswith(".tmp")]
            broken = [model.name for model in models if subprocess.run(
                [place.mae, *generate.replace("MODEL", str(model)).split()], cwd=home, capture_output=True).returncode]
            fine = updates > 0 and resumed.returncode == 0 and not broken
            counts["images with a usable checkpoint" if fine else "IMAGES WITHOUT ONE"] += 1
            if not fine:
                print(f"  {updates} {broken}: {resumed.stderr.decode(errors='replace')[-300:]}", file=sys.stderr)
            shutil.rmtree(home / "rescued")
    finally:
        if child:
            child.kill()
            child.wait()
        subprocess.run(["umount", str(disk)])
    return not counts["IMAGES WITHOUT ONE"]


PARTS = {"kills": (kills, 2000), "mutants": (mutants, 10_000), "lines": (lines, 200_000), "power": (power, 50)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mae", help="the program")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full length")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments and mutants")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    args = parser.parse_args()
    rows, good = [], True
    with tempfile.TemporaryDirectory() as home:
        place = Place(args.mae, home, args.seed)
        place.run(place.train("base", 3) + " --system base")
        (place.home / "one.de").write_text("haus hund de\n")
        for name in args.only:
            part, full = PARTS[name]
            counts, begun = Counter(), time.time()
            fine = part(place, max(1, round(full * args.scale)), counts)
            good &= fine
            found = ", ".join(f"{what}: {count:,}" for what, count in counts.items() if count)
            rows.append((name, found, f"{time.time() - begun:,.0f} s", "holds" if fine else "DOES NOT HOLD"))
            print(f"{name}: {rows[-1]}", file=sys.stderr, flush=True)
    print("| part | counted | time | |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    sys.exit(not good)


if __name__ == "__main__":
    main()
