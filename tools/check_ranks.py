#!/usr/bin/env python3
"""Checks training on several processes with the program itself: exactness and faults.

    python3 tools/check_ranks.py exact --mae target/release/mae --launcher mpiexec
    python3 tools/check_ranks.py faults --mae target/release/mae --launcher mpiexec --kills 20

`exact` trains BASE, MAE-7 with G steps, NoBCD, MoH, L0 and an adaptive language model for 20 updates with 2, 3 and 4 ranks,
and compares model and moments byte for byte with one process and --update-freq 2, 3, 4. `faults` kills one rank at a
random moment, again and again: the others must end within 10 s and name it, and the run that resumes must end with
the bytes of an undisturbed one. The launcher is mpiexec, or `tcp`, which starts the processes as torchrun does.
Only Python's standard library is needed; the data is made here.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SMALL = [f"--set=model.{key}" for key in (
    "encoder_layers=2", "decoder_layers=2", "encoder_embed_dim=32", "encoder_ffn_embed_dim=48",
    "encoder_attention_heads=4")]
SMALL_LM = [f"--set=model.{key}" for key in (
    "decoder_layers=2", "decoder_embed_dim=32", "decoder_ffn_embed_dim=48", "decoder_attention_heads=4",
    "adaptive_softmax_cutoff=[20,40]")] + ["--tokens-per-sample=30"]
SYSTEMS = {
    "BASE": ["bin", "--recipe=iwslt14-base", *SMALL],
    "MAE-7": ["bin", "--recipe=iwslt14-mae7", *SMALL, "--gate-every-updates=3"],
    "NoBCD": ["bin", "--recipe=iwslt14-nobcd", *SMALL],
    "MoH": ["bin", "--recipe=iwslt14-moh", *SMALL, "--set=model.mixture.shared_heads=1",
            "--set=model.mixture.active_heads=3"],
    "L0": ["bin", "--recipe=iwslt14-l0", *SMALL, "--set=train.gate_loss_start=5", "--set=train.gate_loss_ramp=5"],
    "LM, adaptive": ["lm", "--recipe=wiki103-mae7", *SMALL_LM, "--gate-every-updates=3", "--warmup-updates=5",
                     "--lr-period-updates=100"],
}
FILES = ("model.safetensors", "optimizer.safetensors")
LIMIT = 10.0


def make_data(mae, home):
    """A made-up corpus: sentences and the same words in reverse."""
    draw = random.Random(3)
    for name, lines in (("train", 800), ("valid", 60)):
        with open(f"{home}/{name}.de", "w") as source, open(f"{home}/{name}.en", "w") as target:
            for _ in range(lines):
                words = [f"w{draw.randrange(60)}" for _ in range(draw.randint(2, 12))]
                source.write(" ".join(words) + "\n")
                target.write(" ".join(reversed(words)) + "\n")
    quiet = {"check": True, "cwd": home, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    pref = ["--trainpref", "train", "--validpref", "valid"]
    subprocess.run([mae, "preprocess", "-s", "de", "-t", "en", *pref, "--destdir", "bin"], **quiet)
    pref = ["--trainpref", "train.de", "--validpref", "valid.de"]
    subprocess.run([mae, "preprocess", "--only-source", *pref, "--destdir", "lm"], **quiet)


def command(mae, system, out, freq, updates, extra=()):
    return [mae, "train", *SYSTEMS[system], "--device=cpu", "--max-tokens=150", f"--max-update={updates}",
            f"--update-freq={freq}", f"--save-dir={out}", "--no-memory-check", "--log-interval=5", "--seed=5", *extra]


def start(launcher, ranks, words, home):
    """Starts the ranks; returns the processes to wait for."""
    environment = dict(os.environ, RAYON_NUM_THREADS="1")
    pipes = {"cwd": home, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    if launcher != "tcp":
        return [subprocess.Popen([*launcher.split(), "-n", str(ranks), *words], env=environment, **pipes)]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment |= {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [subprocess.Popen(words, env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, **pipes)
            for rank in range(ranks)]


def finish(processes):
    texts = [process.communicate()[0] for process in processes]
    return max(process.returncode != 0 for process in processes), "".join(texts)


def same(home, one, other):
    def read(run, name):
        with open(f"{home}/{run}/checkpoint_last/{name}", "rb") as file:
            return file.read()
    return all(read(one, name) == read(other, name) for name in FILES)


def exact(arguments, home):
    faults = 0
    for system in SYSTEMS:
        for ranks in (2, 3, 4):
            out = f"{system.replace(', ', '-')}-{ranks}"
            failed, text = finish(start("tcp", 1, command(arguments.mae, system, out + "-alone", ranks, 20), home))
            words = command(arguments.mae, system, out, 1, 20, arguments.also.split())
            also_failed, more = finish(start(arguments.launcher, ranks, words, home))
            equal = not failed and not also_failed and same(home, out, out + "-alone")
            faults += not equal
            print(f"{system:14} {ranks} ranks x 20 updates: {'the same bytes' if equal else 'OTHER BYTES'}", flush=True)
            if failed or also_failed:
                print(text + more)
    return faults


def ranks_of(save_dir):
    """Process numbers of the ranks of a run, in no order."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if words[1:2] == [b"train"] and f"--save-dir={save_dir}".encode() in words:
            found.append(int(entry))
    return found


def faults(arguments, home):
    draw, bad, kills = random.Random(arguments.seed), 0, 0
    # As many updates as take a few seconds, and many checkpoints.
    extra, updates = ["--save-interval-updates=4"], 80
    words = command(arguments.mae, "MAE-7", "whole", 1, updates, extra)
    begun = time.monotonic()
    finish(start(arguments.launcher, arguments.ranks, words, home))
    length = time.monotonic() - begun
    print(f"an undisturbed run of {arguments.ranks} ranks takes {length:.1f} s", flush=True)
    while kills < arguments.kills:
        out = f"killed-{kills}"
        words = command(arguments.mae, "MAE-7", out, 1, updates, extra)
        begun = time.monotonic()
        processes = start(arguments.launcher, arguments.ranks, words, home)
        time.sleep(draw.uniform(0.02, 0.9) * length)
        victims = sorted(ranks_of(out))
        if len(victims) < arguments.ranks:
            # The run has ended already: this one was faster.
            finish(processes)
            length = min(length, time.monotonic() - begun)
            shutil.rmtree(f"{home}/{out}", ignore_errors=True)
            continue
        victim = victims[kills % len(victims)]
        kills += 1
        os.kill(victim, signal.SIGKILL)
        begun = time.monotonic()
        while ranks_of(out) and time.monotonic() < begun + 3 * LIMIT:
            time.sleep(0.02)
        seconds = time.monotonic() - begun
        for process in ranks_of(out):
            os.kill(process, signal.SIGKILL)
        _, text = finish(processes)
        named = [line for line in text.splitlines() if f"process {victim}" in line]
        log = f"{home}/{out}/log.jsonl"
        done = open(log).read().count('"train"') if os.path.exists(log) else 0
        finish(start(arguments.launcher, arguments.ranks, words, home))
        equal = same(home, "whole", out)
        bad += seconds >= LIMIT or not equal
        print(f"{kills:2}: killed after {5 * done:3} updates, the others ended after {seconds:.2f} s, "
              f"{'named' if named else 'not named by a rank'}; resumed, {'the same bytes' if equal else 'OTHER BYTES'}",
              flush=True)
        shutil.rmtree(f"{home}/{out}", ignore_errors=True)
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("exact", "faults"))
    parser.add_argument("--mae", default="target/release/mae")
    parser.add_argument("--launcher", default="mpiexec", help="mpiexec with its path and flags, or tcp")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--also", default="", help="flags of the ranks alone, of exact: --also=--zero=1")
    arguments = parser.parse_args()
    arguments.mae = os.path.abspath(arguments.mae)
    with tempfile.TemporaryDirectory() as home:
        make_data(arguments.mae, home)
        bad = (exact if arguments.what == "exact" else faults)(arguments, home)
    print("all as it should be" if bad == 0 else f"{bad} FAULTS")
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
