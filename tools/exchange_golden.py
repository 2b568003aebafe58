"""Small models of other programs with random weights, and what they compute: fixtures/exchange.

    python tools/exchange_golden.py

Needs torch, transformers, ctranslate2, safetensors (run with 2.11.0, 5.22.2, 4.8.4, 0.8.0). Everything is random, from a seed.
"""
import json, shutil
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

torch.set_num_threads(1)
torch.manual_seed(5)
ROOT = Path(__file__).parent.parent
OUT = ROOT / "fixtures/exchange"
shutil.rmtree(OUT, ignore_errors=True)
OUT.mkdir()
D, F, H = 8, 12, 2
WORDS = [f"w{i}" for i in range(8)]


def normal(*shape):
    return torch.randn(*shape) * (0.1 if len(shape) == 1 else shape[-1] ** -0.5)


def linear(name, rows, cols):
    return {f"{name}.weight": normal(rows, cols), f"{name}.bias": normal(rows)}


def norm(name):
    return {f"{name}.weight": 1 + normal(D), f"{name}.bias": normal(D)}


def stack(side, layers, attentions, final):
    out = {}
    for i in range(layers):
        at = f"{side}.layers.{i}"
        for attention in attentions:
            for part in "q_proj", "k_proj", "v_proj", "out_proj":
                out |= linear(f"{at}.{attention}.{part}", D, D)
            out |= norm(f"{at}.{attention}_layer_norm")
        out |= linear(f"{at}.fc1", F, D) | linear(f"{at}.fc2", D, F) | norm(f"{at}.final_layer_norm")
    return out | (norm(f"{side}.layer_norm") if final else {})


def old_layout(state):
    """Names of fairseq before 0.8."""
    out = OrderedDict()
    order = {"encoder": ["self_attn", "final"], "decoder": ["self_attn", "encoder_attn", "final"]}
    for name, value in state.items():
        if ".q_proj." in name:
            q, k, v = (state[name.replace("q_proj", f"{p}_proj")] for p in "qkv")
            out[name.replace("q_proj.", "in_proj_")] = torch.cat([q, k, v])
        elif ".k_proj." in name or ".v_proj." in name:
            continue
        elif "_layer_norm." in name and ".layers." in name:
            at, kind = name.rsplit(".", 1)
            layer, part = at.rsplit(".", 1)
            number = order[name.split(".")[0]].index(part.removesuffix("_layer_norm"))
            out[f"{layer}.layer_norms.{number}.{kind}"] = value
        elif name != "decoder.output_projection.weight":
            out[name] = value
    return out


class Meter:
    """Stands for the classes of fairseq in old checkpoints, which nobody may need."""


def fairseq():
    folder = OUT / "fairseq"
    folder.mkdir()
    types = 4 + len(WORDS)
    state = OrderedDict()
    state["encoder.embed_tokens.weight"] = normal(types, D)
    state |= stack("encoder", 2, ["self_attn"], False)
    state["decoder.embed_tokens.weight"] = normal(types, D)
    state |= stack("decoder", 1, ["self_attn", "encoder_attn"], False)
    save_file({k: v.contiguous() for k, v in state.items()}, folder / "truth.safetensors")
    full = OrderedDict(state)
    full["decoder.output_projection.weight"] = state["decoder.embed_tokens.weight"]
    full["encoder.version"] = torch.tensor([3.0])
    full["encoder.embed_positions._float_tensor"] = torch.zeros(1)
    args = Namespace(arch="transformer_iwslt_de_en", source_lang="de", target_lang="en", encoder_attention_heads=H,
                     decoder_attention_heads=H, encoder_normalize_before=False, decoder_normalize_before=False, max_source_positions=64,
                     max_target_positions=64, share_decoder_input_output_embed=True, activation_fn="relu", dropout=0.3)
    rest = dict(optimizer_history=[{"num_updates": 7}], extra_state={"epoch": 3, "meter": Meter()}, last_optimizer_state=None)
    torch.save({"args": args, "model": full, **rest}, folder / "zip.pt")
    half = OrderedDict((k, v.half()) for k, v in full.items())
    torch.save({"args": None, "cfg": {"model": args, "task": {"source_lang": "de", "target_lang": "en"}}, "model": half, **rest}, folder / "half.pt")
    torch.save({"args": args, "model": old_layout(state), **rest}, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    # A view of a larger storage, transposed.
    turned = OrderedDict(full)
    turned["encoder.layers.0.fc1.weight"] = torch.cat([torch.zeros(1, F), state["encoder.layers.0.fc1.weight"].t()])[1:].t()
    torch.save({"args": args, "model": turned}, folder / "views.pt")
    for lang in "de", "en":
        (folder / f"dict.{lang}.txt").write_text("".join(f"{word}{lang} 1\n" for word in WORDS))

    folder = OUT / "fairseq_lm"
    folder.mkdir()
    state = OrderedDict()
    cutoffs, types = [6, 9], 4 + len(WORDS)
    for band, (rows, width) in enumerate([(6, 8), (3, 4), (types - 9, 2)]):
        state[f"decoder.embed_tokens.embeddings.{band}.0.weight"] = normal(rows, width)
        state[f"decoder.embed_tokens.embeddings.{band}.1.weight"] = normal(D, width)
    state |= stack("decoder", 2, ["self_attn"], False)
    state["decoder.adaptive_softmax.head.class_proj.weight"] = normal(2, D)
    save_file({k: v.contiguous() for k, v in state.items()}, folder / "truth.safetensors")
    state["decoder.adaptive_softmax.head.word_proj.weight"] = state["decoder.embed_tokens.embeddings.0.0.weight"]
    for tail in 0, 1:
        state[f"decoder.adaptive_softmax.tail.{tail}.0.weight"] = state[f"decoder.embed_tokens.embeddings.{tail + 1}.1.weight"]
        state[f"decoder.adaptive_softmax.tail.{tail}.2.weight"] = state[f"decoder.embed_tokens.embeddings.{tail + 1}.0.weight"]
    args = Namespace(arch="transformer_lm_wiki103", decoder_attention_heads=H, decoder_normalize_before=True, adaptive_softmax_cutoff="6,9",
                     adaptive_input=True, adaptive_input_cutoff="6,9", adaptive_input_factor=2, adaptive_softmax_factor=2.0,
                     tokens_per_sample=32, activation_fn="relu", no_decoder_final_norm=True)
    torch.save({"args": args, "model": state}, folder / "lm.pt")
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in WORDS))


def cases(model, source_ids, target_ids):
    """Log-probabilities of targets, by a model of transformers."""
    out = []
    for source, target in zip(source_ids, target_ids):
        with torch.no_grad():
            start = [model.config.decoder_start_token_id] + target[:-1]
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([start]), use_cache=False).logits[0]
        out.append(logits.log_softmax(-1)[range(len(target)), target].tolist())
    return out


def randomise(model):
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "embed_positions" not in name:
                value.copy_(normal(*value.shape) + (1 if "layer_norm.weight" in name else 0))


def marian():
    from transformers import MarianConfig, MarianMTModel

    folder = OUT / "marian"
    pieces = ["▁the", "▁a", "s", "t", "▁model", "e", "▁", "n", "o", ">>fra<<"]
    vocab = {"</s>": 0, "<unk>": 1} | {piece: i + 2 for i, piece in enumerate(pieces)}
    vocab["<pad>"] = len(vocab)
    types = len(vocab)
    config = MarianConfig(vocab_size=types, decoder_vocab_size=types, d_model=D, encoder_layers=1, decoder_layers=2, encoder_attention_heads=H,
                          decoder_attention_heads=H, encoder_ffn_dim=F, decoder_ffn_dim=F, activation_function="swish", scale_embedding=True,
                          pad_token_id=types - 1, eos_token_id=0, decoder_start_token_id=types - 1, forced_eos_token_id=0,
                          max_position_embeddings=64)
    model = MarianMTModel(config).eval()
    randomise(model)
    with torch.no_grad():
        model.final_logits_bias.copy_(normal(1, types) * 3)
        model.model.shared.weight[-1] = 0
    model = model.half().float()
    model.half().save_pretrained(folder)
    model = model.float()
    torch.save(OrderedDict((k, v) for k, v in model.state_dict().items()), folder / "pytorch_model.bin")
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
    for name in "source.spm", "target.spm":
        shutil.copyfile(ROOT / "fixtures/sentencepiece/unigram.model", folder / name)
    sources, targets = [[2, 4, 5, 0], [11, 3, 6, 7, 2, 0], [1, 0]], [[3, 9, 0], [4, 4, 1, 10, 0], [0]]
    names = {i: piece for piece, i in vocab.items()}
    write_cases(folder, [[names[i] for i in row[:-1]] for row in sources], [[names[i] for i in row[:-1]] for row in targets],
                cases(model, sources, targets))


def fsmt():
    from transformers import FSMTConfig, FSMTForConditionalGeneration

    folder = OUT / "fsmt"
    specials = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    source = specials | {"ha": 4, "us</w>": 5, "das</w>": 6}
    target = specials | {"ho": 4, "use</w>": 5, "the</w>": 6, "a</w>": 7}
    config = FSMTConfig(langs=["de", "en"], src_vocab_size=len(source), tgt_vocab_size=len(target), d_model=D, encoder_layers=1, decoder_layers=1,
                        encoder_attention_heads=H, decoder_attention_heads=H, encoder_ffn_dim=F, decoder_ffn_dim=F, scale_embedding=True,
                        max_position_embeddings=64, tie_word_embeddings=False, dropout=0.0)
    model = FSMTForConditionalGeneration(config).eval()
    randomise(model)
    model.save_pretrained(folder)
    (folder / "vocab-src.json").write_text(json.dumps(source))
    (folder / "vocab-tgt.json").write_text(json.dumps(target))
    (folder / "merges.txt").write_text("h a 12\nu s</w> 7\nd as</w> 3\n")
    sources, targets = [[6, 4, 5, 2], [4, 4, 6, 2]], [[6, 4, 5, 2], [7, 2]]
    s, t = ["", "", "", "", "ha@@", "us", "das"], ["", "", "", "", "ho@@", "use", "the", "a"]
    write_cases(folder, [[s[i] for i in row[:-1]] for row in sources], [[t[i] for i in row[:-1]] for row in targets],
                cases(model, sources, targets))


def write_cases(folder, sources, targets, log_probs):
    rows = [{"source": " ".join(s), "target": " ".join(t), "log_probs": p} for s, t, p in zip(sources, targets, log_probs)]
    (folder / "cases.json").write_text(json.dumps(rows, ensure_ascii=False, indent=1))


def ct2():
    import ctranslate2
    from ctranslate2.specs import TransformerSpec

    folder = OUT / "ct2"
    words = ["<s>", "<blank>", "</s>", "<unk>"] + WORDS
    rng = np.random.default_rng(3)
    spec = TransformerSpec.from_config((2, 1), H, pre_norm=True, activation=ctranslate2.specs.Activation.SWISH)

    def value(*shape):
        return (rng.normal(0, 0.1 if len(shape) == 1 else shape[-1] ** -0.5, shape)).astype(np.float32)

    def fill(linear, rows, cols):
        linear.weight, linear.bias = value(rows, cols), value(rows)

    def fill_norm(norm):
        norm.gamma, norm.beta = 1 + value(D), value(D)

    for side in spec.encoder, spec.decoder:
        side.scale_embeddings = np.float32(D ** 0.5)
        side.position_encodings.encodings = value(40, D)
        fill_norm(side.layer_norm)
        for layer in side.layer:
            attentions = [(layer.self_attention, [3 * D, D])]
            if side is spec.decoder:
                attentions.append((layer.attention, [D, 2 * D, D]))
            for attention, rows in attentions:
                fill_norm(attention.layer_norm)
                for linear, n in zip(attention.linear, rows):
                    fill(linear, n, D)
            fill_norm(layer.ffn.layer_norm)
            fill(layer.ffn.linear_0, F, D)
            fill(layer.ffn.linear_1, D, F)
    spec.encoder.embeddings[0].weight = value(len(words), D)
    spec.decoder.embeddings.weight = value(len(words), D)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.decoder.projection.bias = value(len(words))
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.add_source_eos, spec.config.decoder_start_token = True, "</s>"
    spec.validate()
    folder.mkdir()
    spec.save(str(folder))
    model = ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
    sources, targets = [["w1", "w2", "w3"], ["w7"], ["w0", "w0", "w5", "w6"]], [["w3", "w1"], ["w2", "w2", "w4"], ["w7"]]
    write_cases(folder, sources, targets, [case.log_probs for case in model.score_batch(sources, targets)])


fairseq()
marian()
fsmt()
ct2()
for path in OUT.rglob("generation_config.json"):
    path.unlink()
