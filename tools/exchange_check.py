"""Holds `mae import` and `mae export` against the programs whose formats they are.

    python tools/exchange_check.py MAE ct2 FOLDER               a model of CTranslate2: 200 random inputs
    python tools/exchange_check.py MAE marian OPUS [--big]      MarianMT of random weights, with the vocab.json, source.spm and
                                                                target.spm of the folder OPUS of a real OPUS-MT model
    python tools/exchange_check.py MAE fsmt [--big]             FSMT of random weights; --big has the shapes of facebook/wmt19
    python tools/exchange_check.py MAE m2m OPUS [--big]         M2M100 of random weights, with pieces of a SentencePiece model of OPUS
    python tools/exchange_check.py MAE export [CHECKPOINT]      a checkpoint of fairseq (that of fixtures/exchange) to a model folder,
                                                                and that to CTranslate2, transformers and fairseq

Each prints the largest difference of log-probabilities of given translations (1e-4 is asked for) and the number of equal
hypotheses of beam 5. Needs torch, transformers, ctranslate2 and sentencepiece (run with 2.11.0, 5.22.2, 4.8.4, 0.2.2).
"""
import argparse, json, random, shutil, subprocess, sys, tempfile, time
from pathlib import Path

from program import Program

ap = argparse.ArgumentParser()
ap.add_argument("mae")
ap.add_argument("what", choices=["ct2", "marian", "fsmt", "m2m", "export"])
ap.add_argument("folder", nargs="?", type=Path)
ap.add_argument("--big", action="store_true")
args = ap.parse_args()
WORK = Path(tempfile.mkdtemp())
mae = Program(args.mae, WORK)
random.seed(7)


class Meter:
    """Stands for a class that the checkpoint of fixtures/exchange names."""


def scores(model, lines, targets, *more):
    """Log-probabilities of the tokens of given translations, end mark included."""
    path = WORK / "target.txt"
    path.write_text("".join(line + "\n" for line in targets))
    found = mae.generate(model, lines, "--target", path, "--score-reference", *more)
    return [case["hypotheses"][0]["logprobs"] if "hypotheses" in case else case["logprobs"] for case in found]


def tokens(case):
    return [token for token in case["hypotheses"][0]["tokens"] if token != "</s>"]


def report(name, equal, total, worst=None):
    difference = "" if worst is None else f"; log-probabilities differ by at most {worst:.1e}"
    print(f"{name}: {equal} of {total} hypotheses are equal{difference}")


def worst_of(ours, theirs):
    assert [len(x) for x in ours] == [len(x) for x in theirs], "lengths differ"
    return max(abs(a - b) for x, y in zip(ours, theirs) for a, b in zip(x, y))


def check_ct2():
    import ctranslate2

    model = WORK / "model"
    mae("import", "ct2", args.folder, "--out", model)
    theirs = ctranslate2.Translator(str(args.folder), compute_type="float32")
    symbols = [line.rsplit(" ", 1)[0] for line in (model / "dict.src.txt").read_text().splitlines()]
    inputs = [random.choices(symbols[:30], k=random.randint(2, 14)) for _ in range(200)]
    lines = [" ".join(line) for line in inputs]
    for beam in 1, 5:
        wanted = theirs.translate_batch(inputs, beam_size=beam, max_decoding_length=100)
        found = mae.generate(model, lines, "--beam", beam)
        equal = sum(tokens(ours) == case.hypotheses[0] for ours, case in zip(found, wanted))
        targets = [case.hypotheses[0] for case in wanted]
        given = theirs.score_batch(inputs, targets)
        worst = worst_of(scores(model, lines, [" ".join(t) for t in targets]), [case.log_probs for case in given])
        report(f"CTranslate2, beam {beam}", equal, len(inputs), worst)


def hf_scores(model, rows):
    """Log-probabilities of target ids (with the end mark) by a model of transformers, one pair at a time."""
    import torch

    out = []
    for source, target in rows:
        with torch.no_grad():
            start = [model.config.decoder_start_token_id] + target[:-1]
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([start]), use_cache=False).logits[0]
        out.append(logits.float().log_softmax(-1)[range(len(target)), target].tolist())
    return out


def fairseq_search(log_probs, eos, pad, beam=5, limit=30):
    """fairseq's beam search for one sentence. `log_probs` takes rows of target ids and gives their next log-probabilities."""
    import torch

    live, done = [([], 0.0)], []
    for step in range(limit + 1):
        table = log_probs([ids for ids, _ in live])
        table[:, pad] = -float("inf")
        if step == 0:
            table[:, eos] = -float("inf")
        if step == limit:
            keep = table[:, eos].clone()
            table[:] = -float("inf")
            table[:, eos] = keep
        sums = table + torch.tensor([score for _, score in live])[:, None]
        best = sums.flatten().topk(2 * beam)
        types = table.shape[1]
        picked = [(int(i) // types, int(i) % types, float(v)) for v, i in zip(best.values, best.indices)]
        done += [(score / (step + 1), live[row][0]) for row, token, score in picked[:beam] if token == eos and score > -1e30]
        if len(done) >= beam or step == limit:
            break
        live = [(live[row][0] + [token], score) for row, token, score in picked if token != eos][:beam]
    return max(done[:beam], key=lambda pair: pair[0])[1]


def hf_next(model, source):
    import torch

    with torch.no_grad():
        memory = model.get_encoder()(torch.tensor([source]))[0]

    def next_(rows):
        start = torch.tensor([[model.config.decoder_start_token_id] + row for row in rows])
        # FSMT forgets its causal mask where it is given no source ids.
        given = {"input_ids": torch.tensor([source] * len(rows))} if model.config.model_type == "fsmt" else {}
        with torch.no_grad():
            out = model(**given, encoder_outputs=(memory.expand(len(rows), -1, -1),), decoder_input_ids=start,
                        attention_mask=torch.ones(len(rows), len(source), dtype=torch.long), use_cache=False)
        return out.logits[:, -1].float().log_softmax(-1)
    return next_


def randomise(model):
    import torch

    torch.manual_seed(1)
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "embed_positions" in name:
                continue
            if name.endswith("bias"):
                value.normal_(0, 0.1)
            elif "layer_norm" in name:
                value.normal_(1, 0.1)
            elif value.dim() == 2:
                value.normal_(0, 1.5 * value.shape[1] ** -0.5)


def check_marian():
    import torch
    torch.set_num_threads(1)
    from transformers import MarianConfig, MarianMTModel, MarianTokenizer

    vocab = json.loads((args.folder / "vocab.json").read_text())
    if args.big:
        # As many symbols as opus-mt-en-de has; padding is the last.
        del vocab["<pad>"]
        vocab.update({f"madeup{i}": i for i in range(len(vocab), 58100)})
        vocab["<pad>"] = 58100
    pad, eos = vocab["<pad>"], vocab["</s>"]
    width, inner, heads, layers = (512, 2048, 8, 6) if args.big else (64, 128, 4, 2)
    config = MarianConfig(vocab_size=len(vocab), decoder_vocab_size=len(vocab), d_model=width, encoder_layers=layers,
                          decoder_layers=layers, encoder_attention_heads=heads, decoder_attention_heads=heads,
                          encoder_ffn_dim=inner, decoder_ffn_dim=inner, activation_function="swish", scale_embedding=True,
                          static_position_embeddings=True, pad_token_id=pad, eos_token_id=eos, decoder_start_token_id=pad,
                          forced_eos_token_id=eos, max_position_embeddings=512)
    model = MarianMTModel(config).eval()
    randomise(model)
    with torch.no_grad():
        model.final_logits_bias.normal_(0, 1)
        model.final_logits_bias[0, eos] += 4
        model.model.shared.weight[pad] = 0
    theirs, ours = WORK / "hf", WORK / "model"
    model.save_pretrained(theirs)
    for name in "source.spm", "target.spm", "tokenizer_config.json":
        shutil.copyfile(args.folder / name, theirs / name)
    (theirs / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
    measured_import(theirs, ours)
    tokenizer = MarianTokenizer.from_pretrained(theirs)
    text = ["Bonjour tout le monde !", "C'est la vie, n'est-ce pas ?", "Le chat dort sur le canapé rouge.", "日本 <s> 12 345,67 €"]
    words = "le la un chat chien maison rouge petite mange dort et mais où Paris été œuvre 1998 ! ? … «oui»".split()
    text += [" ".join(random.choices(words, k=random.randint(2, 14))) for _ in range(64 - len(text))]
    sources = [tokenizer(line).input_ids for line in text]
    greedy = [[int(i) for i in torch.randint(0, len(vocab) - 1, (random.randint(2, 10),))] for _ in text]
    greedy = [[i for i in row if i not in (pad, eos)] + [eos] for row in greedy]
    symbols = {i: s for s, i in vocab.items()}
    targets = [" ".join(symbols[i] for i in row[:-1]) for row in greedy]
    pieces = [" ".join(symbols[i] for i in row[:-1]) for row in sources]
    worst = worst_of(scores(ours, pieces, targets, "--no-bpe"), hf_scores(model, list(zip(sources, greedy))))
    equal = 0
    found = mae.generate(ours, text, "--beam", 5, "--max-len-a", 0, "--max-len-b", 10)
    for line, source, case in zip(text, sources, found):
        wanted = [symbols[i] for i in fairseq_search(hf_next(model, source), eos, pad, limit=10)]
        equal += wanted == tokens(case)
        if wanted != tokens(case) and equal < 3:
            print("   ", line, wanted, tokens(case), sep="\n    ")
    report("MarianMT", equal, len(text), worst)


def measured_import(theirs, ours):
    """Imports a folder of transformers; prints time, and memory as the system counts it (mapped files included)."""
    begin, used = time.time(), {"VmHWM": 0, "RssAnon": 0}
    child = subprocess.Popen([args.mae, "import", "hf", str(theirs), "--out", str(ours)], stdout=subprocess.DEVNULL)
    while child.poll() is None:
        for line in Path(f"/proc/{child.pid}/status").read_text().splitlines():
            key = line.split(":")[0]
            if key in used:
                used[key] = max(used[key], int(line.split()[1]) / 1024)
        time.sleep(0.005)
    if child.returncode:
        sys.exit(f"mae import hf {theirs} failed")
    seconds, size = time.time() - begin, (ours / "model.safetensors").stat().st_size / 2**20
    print(f"import: {seconds:.1f} s; at most {used['VmHWM']:.0f} MiB in memory, of which {used['RssAnon']:.0f} MiB are not pages "
          f"of files, for a model of {size:.0f} MiB", flush=True)


def compare(name, model, ours, symbols, pad, limit):
    """Random sentences and translations of the ids of `symbols` (source and target), by `model` of transformers and by mae."""
    import torch

    rows = lambda known, most: [[random.choice(known) for _ in range(random.randint(2, most))] for _ in range(64)]
    known = [[i for i in side if i > 3] for side in symbols]
    sources, targets = rows(known[0], 12), rows(known[1], 8)
    lines, wanted = ([" ".join(side[i] for i in row) for row in rows] for side, rows in zip(symbols, (sources, targets)))
    sources, targets = ([row + [2] for row in side] for side in (sources, targets))
    worst = worst_of(scores(ours, lines, wanted, "--no-bpe"), hf_scores(model, list(zip(sources, targets))))
    equal = 0
    found = mae.generate(ours, lines, "--no-bpe", "--beam", 5, "--max-len-a", 0, "--max-len-b", limit)
    for source, case in zip(sources, found):
        equal += [symbols[1][i] for i in fairseq_search(hf_next(model, source), 2, pad, limit=limit)] == tokens(case)
    report(name, equal, len(lines), worst)


def check_fsmt():
    import torch
    torch.set_num_threads(1)
    from transformers import FSMTConfig, FSMTForConditionalGeneration

    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    types, width, inner, heads, layers = (42024, 1024, 8192, 16, 6) if args.big else (300, 64, 128, 4, 2)
    config = FSMTConfig(langs=["de", "en"], src_vocab_size=types, tgt_vocab_size=types, d_model=width, encoder_layers=layers,
                        decoder_layers=layers, encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=inner,
                        decoder_ffn_dim=inner, scale_embedding=True, max_position_embeddings=1024, tie_word_embeddings=False,
                        dropout=0.0)
    model = FSMTForConditionalGeneration(config).eval()
    randomise(model)
    theirs, ours = WORK / "hf", WORK / "model"
    model.save_pretrained(theirs)
    words = [f"w{i}" for i in range(4, types)]
    for side in "src", "tgt":
        (theirs / f"vocab-{side}.json").write_text(json.dumps({s: i for i, s in enumerate(specials + [f"{w}</w>" for w in words])}))
    (theirs / "merges.txt").write_text("w 4</w> 1\n")
    measured_import(theirs, ours)
    symbols = dict(enumerate(specials + words))
    compare("FSMT", model, ours, [symbols, symbols], 1, 6)


def check_m2m():
    import torch
    torch.set_num_threads(1)
    from transformers import M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(args.folder / "source.spm"))
    names = [pieces.id_to_piece(i) for i in range(pieces.get_piece_size())]
    vocab = {s: i for i, s in enumerate(["<s>", "<pad>", "</s>", "<unk>"])}
    for name in names:
        vocab.setdefault(name, len(vocab))
    width, inner, heads, layers = (1024, 4096, 16, 12) if args.big else (64, 128, 4, 2)
    config = M2M100Config(vocab_size=len(vocab) + 108, d_model=width, encoder_layers=layers, decoder_layers=layers,
                          encoder_attention_heads=heads, decoder_attention_heads=heads, encoder_ffn_dim=inner, decoder_ffn_dim=inner,
                          encoder_layerdrop=0.0, decoder_layerdrop=0.0, max_position_embeddings=256)
    model = M2M100ForConditionalGeneration(config).eval()
    randomise(model)
    with torch.no_grad():
        model.model.shared.weight[1] = 0
    theirs, ours = WORK / "hf", WORK / "model"
    model.save_pretrained(theirs)
    (theirs / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
    shutil.copyfile(args.folder / "source.spm", theirs / "sentencepiece.bpe.model")
    measured_import(theirs, ours)
    tokenizer = M2M100Tokenizer(str(theirs / "vocab.json"), str(theirs / "sentencepiece.bpe.model"), src_lang="fr")
    symbols = {i: s for s, i in vocab.items()} | {i: s for s, i in tokenizer.lang_token_to_id.items()}
    usable = {i: s for i, s in symbols.items() if not any(c.isspace() for c in s)}
    compare("M2M100", model, ours, [usable, usable], 1, 6)
    # A text with the codes of its languages, cut into pieces here and there.
    lines = ["Bonjour tout le monde !", "Le chat dort sur le canapé rouge.", "C'est la vie, n'est-ce pas ?"]
    first, equal = tokenizer.get_lang_id("de"), 0
    path = WORK / "codes.txt"
    path.write_text("__de__\n" * len(lines))
    found = mae.generate(ours, [f"__fr__ {line}" for line in lines], "--beam", 5, "--target", path, "--prefix-size", 1,
                         "--max-len-a", 0, "--max-len-b", 6)
    for line, case in zip(lines, found):
        source = tokenizer(line).input_ids
        next_ = hf_next(model, source)

        def forced(rows):
            table = next_(rows)
            if not rows[0]:
                keep = table[:, first].clone()
                table[:] = -float("inf")
                table[:, first] = keep
            return table
        equal += [symbols[i] for i in fairseq_search(forced, 2, 1, limit=6)] == tokens(case)
    report("M2M100 with languages", equal, len(lines))


def check_export():
    import ctranslate2
    import torch
    from transformers import FSMTForConditionalGeneration

    torch.set_num_threads(1)
    checkpoint = args.folder or Path(__file__).parent.parent / "fixtures/exchange/fairseq/zip.pt"
    model = WORK / "model"
    mae("import", "fairseq", checkpoint, "--out", model)
    symbols = [line.rsplit(" ", 1)[0] for line in (model / "dict.src.txt").read_text().splitlines()]
    words = [line.rsplit(" ", 1)[0] for line in (model / "dict.tgt.txt").read_text().splitlines()]
    inputs = [random.choices(symbols, k=random.randint(2, 9)) for _ in range(256)]
    lines = [" ".join(line) for line in inputs]
    targets = [random.choices(words, k=random.randint(1, 6)) for _ in inputs]
    ours = scores(model, lines, [" ".join(line) for line in targets], "--no-bpe")
    found = mae.generate(model, lines, "--no-bpe", "--beam", 5, "--max-len-a", 0, "--max-len-b", 60)

    mae("export", "ct2", model, "--out", WORK / "ct2")
    theirs = ctranslate2.Translator(str(WORK / "ct2"), compute_type="float32", inter_threads=1, intra_threads=1)
    wanted = theirs.translate_batch(inputs, beam_size=5, max_decoding_length=60)
    # CTranslate2 and fairseq end hypotheses at the limit in different ways.
    ended = [pair for pair in zip(map(tokens, found), (case.hypotheses[0] for case in wanted)) if max(map(len, pair)) < 60]
    equal = sum(ours == theirs for ours, theirs in ended)
    given = theirs.score_batch(inputs, targets)
    report("fairseq to CTranslate2", equal, len(ended), worst_of(ours, [case.log_probs for case in given]))

    mae("export", "hf", model, "-s", "de", "-t", "en", "--out", WORK / "hf")
    hf = FSMTForConditionalGeneration.from_pretrained(WORK / "hf").eval()
    ids = lambda line, known: [4 + known.index(word) for word in line] + [2]
    rows = [(ids(line, symbols), ids(target, words)) for line, target in zip(inputs, targets)]
    equal = 0
    for (source, _), case in zip(rows, found):
        ids_found = fairseq_search(hf_next(hf, source), 2, 1, limit=60)
        equal += [words[i - 4] if i > 3 else ["<s>", "<pad>", "</s>", "<unk>"][i] for i in ids_found] == tokens(case)
    report("fairseq to FSMT", equal, len(rows), worst_of(ours, hf_scores(hf, rows)))

    mae("export", "fairseq", model, "-s", "de", "-t", "en", "--out", WORK / "fairseq")
    saved = torch.load(WORK / "fairseq" / "model.pt", weights_only=False)
    before = torch.load(checkpoint, weights_only=False)["model"]
    same = [name for name, value in saved["model"].items() if name in before and torch.equal(value, before[name].float())]
    print(f"fairseq to fairseq: torch.load reads the checkpoint; {len(same)} of {len(saved['model'])} tensors are equal; {saved['args']}"[:200])


globals()[f"check_{args.what}"]()
shutil.rmtree(WORK)
