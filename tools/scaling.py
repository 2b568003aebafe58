#!/usr/bin/env python3
"""Predicts the speed of training on many processes, and checks the prediction for CPU ranks.

    python3 tools/scaling.py predict
    python3 tools/scaling.py check --mae target/release/mae --launcher mpiexec

`predict` prints, for the shapes of WMT14 and WikiText-103 on 8 to 512 GPUs, the efficiency of weak scaling and the share
of an update that is the sum of gradients. It knows measured step times of one GPU (docs/performance.md), bytes of
gradients, when slices of them are complete, and speeds of links. `check` measures one process, the sum of gradients and
two ranks on this machine, one thread each, and compares the model with the measurement; it also prints two threads of one
process beside two ranks.

The model of an update with K ranks on nodes of G GPUs:

    t(K) = max(t, end of the sum of the last slice),  t = t(1)·(1 + cv·√(2·ln K))
    sum(bytes) = 2·(G−1)/G·bytes/link + 2·(N−1)/N·bytes/(G·network) + 2·(G−1 + log₂ N)·latency,  N = K/G nodes

cv is the variation of the time of a batch, as all ranks wait for the slowest. Slices are summed one after the other, each as
soon as it is complete; without overlap there is one slice, complete at the end. Between nodes NCCL sums by trees.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile

import check_ranks

# ms of an update of one H200 (docs/performance.md), parameters, batches of an update, share of the parameters in layers.
SHAPES = {
    "WMT14, transformer base, 25,000 tokens": (24.3, 78e6, 1, 0.57),
    "WMT14, transformer base, 3,300 tokens": (3.5, 78e6, 1, 0.57),
    "WikiText-103, 4,096 tokens": (13.4, 247e6, 1, 0.82),
    "WikiText-103, 4,096 tokens x update_freq 6": (6 * 12.0, 247e6, 6, 0.82),
}
# The backward pass is this part of a batch. Gradients of layers become complete evenly over it, those of embeddings at its
# end; values of a slice.
BACKWARD = 0.6
SLICE = 8.4e6
# GB/s of a GPU to its neighbours and to the network, as NCCL reaches them; seconds of a hop.
CLUSTERS = {
    "NVLink, 400 Gb/s for each GPU": (360e9, 42e9, 6e-6),
    "NVLink, 100 Gb/s for each machine": (360e9, 11e9 / 8, 12e-6),
    "PCIe, 100 Gb/s for each machine": (20e9, 11e9 / 8, 15e-6),
}
NODE = 8
VARIATION = 0.02
# Slices: share of the bytes, and seconds from when it is complete to the end of the step.
AT_THE_END = [(1.0, 0.0)]


def time_of_sum(ranks, size, link, network, latency):
    """Seconds of a sum of `size` bytes over all ranks."""
    inside, nodes = min(ranks, NODE), math.ceil(ranks / NODE)
    near = 2 * (inside - 1) / inside * size / link
    far = 2 * (nodes - 1) / nodes * size / (inside * network)
    return near + far + 2 * (inside - 1 + math.log2(nodes)) * latency


def time_of_update(ranks, alone, cost, slices=AT_THE_END, variation=VARIATION):
    """Seconds of an update of `ranks` ranks, where one takes `alone` and the sum of a share of the bytes `cost(share)`."""
    step = alone * (1 + variation * math.sqrt(2 * math.log(ranks)))
    end = 0.0
    for share, before in slices:
        end = max(end, step - before) + cost(share)
    return max(step, end)


def slices_of(batch, parameters, in_layers):
    """Slices of the gradients, the first one complete first."""
    count = max(1, round(in_layers * parameters / SLICE))
    layers = [(in_layers / count, BACKWARD * batch * (1 - (number + 1) / count)) for number in range(count)]
    return [*layers, (1 - in_layers, 0.0)]


def predict():
    for shape, (milliseconds, parameters, batches, in_layers) in SHAPES.items():
        print(f"\n{shape}: {milliseconds:.1f} ms alone, {parameters / 1e6:.0f} M parameters")
        print(f"{'':36}  f32            f32, overlap   bf16           bf16, overlap")
        for cluster, (link, network, latency) in CLUSTERS.items():
            for ranks in (8, 16, 64, 512):
                cells = []
                for width in (4, 2):
                    alone = milliseconds / 1e3

                    def cost(share):
                        return time_of_sum(ranks, share * width * parameters, link, network, latency)

                    total = cost(1.0)
                    mark = "!" if total > alone else " "
                    for slices in (AT_THE_END, slices_of(alone / batches, parameters, in_layers)):
                        update = time_of_update(ranks, alone, cost, slices)
                        cells.append(f"{alone / update:4.0%} {1e3 * total:6.1f} ms{mark}")
                print(f"{cluster:33} {ranks:4} {'  '.join(cells)}")
    print("\nEfficiency of weak scaling, and the time of the sum; ! where the sum takes longer than the step.")


def run(mae, home, name, words, launcher=None, ranks=1, threads=1):
    """Trains, and returns seconds and target tokens of an update, and the variation of its time."""
    command = [mae, "train", "bin", "--device=cpu", f"--save-dir={name}", "--no-memory-check", "--log-interval=1",
               "--validate-interval=0", "--save-interval=0", *words]
    command = command if launcher is None else [launcher, "-n", str(ranks), *command]
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    subprocess.run(command, cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL)
    with open(f"{home}/{name}/log.jsonl") as log:
        lines = [line for line in map(json.loads, log) if line["event"] == "train"]
    # Not the first lines, which have the start of everything.
    times = [line["wpb"] / line["wps"] for line in lines[3:]]
    seconds = statistics.median(times)
    spread = statistics.median(abs(time - seconds) for time in times)
    return seconds, statistics.mean(line["wpb"] for line in lines[3:]), 1.48 * spread / seconds


def check(arguments):
    mae = os.path.abspath(arguments.mae)
    words = ["--recipe", arguments.recipe, "--max-tokens", str(arguments.tokens), "--max-update",
             str(arguments.updates)]
    with tempfile.TemporaryDirectory() as home:
        check_ranks.make_data(mae, home)
        alone, tokens, variation = run(mae, home, "alone", words)
        with open(f"{home}/alone/checkpoint_last/model.safetensors", "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        shapes = [entry["shape"] for name, entry in header.items() if name != "__metadata__"]
        parameters = sum(math.prod(shape) for shape in shapes)
        mib = max(1, round(4 * parameters / 2**20))
        print(f"{parameters / 1e6:.1f} M parameters, gradients of {mib} MiB, {tokens:.0f} target tokens in a batch")
        print(f"1 rank:            {1e3 * alone:8.1f} ms per update  {tokens / alone:8.0f} tokens/s, "
              f"variation {variation:.3f}")
        for ranks in arguments.ranks:
            bench = [arguments.launcher, "-n", str(ranks), mae, "bench", "allreduce", "--device=cpu", f"--mib={mib}",
                     "--json"]
            environment = dict(os.environ, RAYON_NUM_THREADS="1")
            line = subprocess.run(bench, check=True, capture_output=True, text=True, env=environment).stdout
            total = json.loads(line)["ms"] / 1e3
            predicted = time_of_update(ranks, alone, lambda share: share * total, variation=variation)
            seconds, *_ = run(mae, home, f"ranks{ranks}", words, arguments.launcher, ranks)
            during, *_ = run(mae, home, f"during{ranks}", [*words, "--ddp-overlap=always"], arguments.launcher, ranks)
            threads, *_ = run(mae, home, f"threads{ranks}", [*words, "--update-freq", str(ranks)], threads=ranks)
            speed = ranks * tokens / seconds
            print(f"{ranks} ranks:           {1e3 * seconds:8.1f} ms per update  {speed:8.0f} tokens/s, "
                  f"efficiency {alone / seconds:.2f}")
            print(f"  predicted:       {1e3 * predicted:8.1f} ms (sum of gradients {1e3 * total:.1f} ms), "
                  f"{100 * (predicted / seconds - 1):+.0f} %")
            print(f"  with overlap:    {1e3 * during:8.1f} ms per update")
            print(f"  {ranks} threads, freq {ranks}: {1e3 * threads:7.1f} ms per update  {ranks * tokens / threads:8.0f} "
                  f"tokens/s: the ranks are {threads / seconds:.2f} times as fast")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("predict", "check"))
    parser.add_argument("--mae", default="target/release/mae")
    parser.add_argument("--launcher", default="mpiexec")
    parser.add_argument("--recipe", default="multi30k-base")
    parser.add_argument("--tokens", type=int, default=1000, help="target tokens of a batch at most")
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    arguments = parser.parse_args()
    predict() if arguments.what == "predict" else check(arguments)


if __name__ == "__main__":
    main()
