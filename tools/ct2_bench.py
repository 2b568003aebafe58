"""Decoding speed of CTranslate2 on a CPU, for `mae bench decode --peer`.

    mae bench decode --device cpu --threads 2 --rounds 3 --peer

The program writes a model for CTranslate2 (`mae export ct2`) and the source sentences, and calls this script with their
paths. Both sides decode the same number of steps: the length is forced, so that random weights serve. Prints one JSON
object per number type, batch size and beam. Needs `pip install ctranslate2` (run with 4.8.4).
"""
import argparse, json, sys, time

TYPES = {"f32": "float32", "int8": "int8", "bf16": "bfloat16"}


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--ct2-model", required=True, help="folder of the model")
    ap.add_argument("--source", required=True, help="source sentences, one per line")
    ap.add_argument("--beams", default="1,5"); ap.add_argument("--batches", default="1,32")
    ap.add_argument("--compute-types", default="f32,int8"); ap.add_argument("--length", type=int, default=25)
    ap.add_argument("--threads", type=int, default=1)
    # Other flags of the program describe the model, which is in the folder.
    a, _ = ap.parse_known_args()
    try:
        import ctranslate2
    except ImportError:
        sys.exit("this Python has no package ctranslate2: pip install ctranslate2, or give --peer another python")
    lines = [line.split() for line in open(a.source, encoding="utf-8")]
    for kind in a.compute_types.split(","):
        if TYPES[kind] not in ctranslate2.get_supported_compute_types("cpu"):
            print(f"CTranslate2 does not compute in {kind} on this processor", file=sys.stderr)
            continue
        model = ctranslate2.Translator(a.ct2_model, device="cpu", compute_type=TYPES[kind],
                                       intra_threads=a.threads, inter_threads=1)
        for batch in map(int, a.batches.split(",")):
            # As the program does: a quarter of the sentences one by one.
            some = lines[: -(-len(lines) // 4)] if batch == 1 else lines
            for beam in map(int, a.beams.split(",")):
                options = dict(beam_size=beam, length_penalty=1, max_batch_size=batch,
                               min_decoding_length=a.length, max_decoding_length=a.length)
                # As the program does: a batch before the clock starts.
                model.translate_batch(some[:batch], **options)
                begin = time.perf_counter()
                for first in range(0, len(some), batch):
                    model.translate_batch(some[first:first + batch], **options)
                rate = len(some) * a.length / (time.perf_counter() - begin)
                print(json.dumps({"beam": beam, "batch": batch, "compute_type": kind,
                                  "target_tokens_per_s": rate}), flush=True)


if __name__ == "__main__":
    main()
