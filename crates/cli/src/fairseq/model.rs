//! Rules for flags of fairseq's transformer and transformer_lm.

use super::rule::Row;
use super::rule::Rule::{By, Key, Keys, Same, Unneeded, Unsupported};
use super::training_values::{activation, architecture, cutoffs, norm, one_of_both, positions, shared};
use super::values::unless_zero;

/// Sizes and choices of models.
pub const MODEL: &[Row] = &[
    (
        "--arch",
        By(
            architecture,
            "transformers for translation and language models, with the sizes of fairseq where the line is fairseq-train's",
        ),
    ),
    ("--dropout --share-all-embeddings", Same),
    (
        "--share-decoder-input-output-embed",
        By(shared, "model.share_embeddings = \"decoder\"; language models always share"),
    ),
    ("--attention-dropout", Key("model.attention_dropout")),
    ("--activation-dropout --relu-dropout", Key("model.activation_dropout")),
    ("--activation-fn", By(activation, "model.activation: relu, gelu or swish")),
    ("--encoder-layers", Key("model.encoder_layers")),
    ("--decoder-layers", Key("model.decoder_layers")),
    ("--encoder-embed-dim", Key("model.encoder_embed_dim")),
    ("--encoder-ffn-embed-dim", Key("model.encoder_ffn_embed_dim")),
    ("--encoder-attention-heads", Key("model.encoder_attention_heads")),
    (
        "--decoder-embed-dim --decoder-ffn-embed-dim --decoder-attention-heads",
        By(
            one_of_both,
            "the key of a language model; for translation as of the encoder: both stacks have the same sizes",
        ),
    ),
    ("--decoder-output-dim --decoder-input-dim", By(one_of_both, "the width of the stack")),
    (
        "--encoder-normalize-before --decoder-normalize-before",
        By(norm, "both: model.norm = \"pre\"; language models always"),
    ),
    ("--no-decoder-final-norm", By(norm, "model.final_norm = false, for language models")),
    (
        "--max-source-positions --max-target-positions",
        By(positions, "model.max_positions: the larger of both"),
    ),
    ("--no-scale-embedding", Keys("model.no_scale_embedding=true")),
    (
        "--adaptive-softmax-cutoff --adaptive-input-cutoff",
        By(cutoffs, "model.adaptive_softmax_cutoff, for input and output"),
    ),
    ("--adaptive-softmax-factor --adaptive-input-factor", Key("model.adaptive_softmax_factor")),
    ("--adaptive-softmax-dropout", Key("model.adaptive_softmax_dropout")),
    ("--adaptive-input", Unneeded("the cutoffs are those of input and output")),
    ("--tie-adaptive-weights", Keys("model.tie_adaptive_weights=true")),
    ("--tie-adaptive-proj", Keys("model.tie_adaptive_proj=true")),
    (
        "--encoder-learned-pos --decoder-learned-pos --no-token-positional-embeddings",
        Unsupported("positions are sinusoids"),
    ),
    (
        "--layernorm-embedding",
        Unsupported("embeddings have no norm of their own; model.norm chooses the place of norms"),
    ),
    (
        "--encoder-embed-path --decoder-embed-path",
        Unsupported("--finetune-from-model DIR starts from a whole model"),
    ),
    (
        "--encoder-layerdrop --decoder-layerdrop --quant-noise-pq --quant-noise-scalar --base-layers",
        By(unless_zero, "0: there is dropout of activations, attention probabilities and heads (--system)"),
    ),
    (
        "--encoder-layers-to-keep --decoder-layers-to-keep --quant-noise-pq-block-size --base-sublayers --base-shuffle",
        Unsupported("layers stay as they are; `mae convert --drop-heads N` removes heads"),
    ),
    (
        "--no-cross-attention --cross-self-attention --scale-fc --scale-attn --scale-heads --scale-resids \
         --encoder-xformers-att-config --decoder-xformers-att-config",
        Unsupported("the model is the plain transformer, with gates on heads: --system mae7"),
    ),
    (
        "--character-embeddings --character-filters --character-embedding-dim --char-embedder-highway-layers --char-inputs",
        Unsupported("words have embeddings of their own; segment them with BPE"),
    ),
    (
        "--checkpoint-activations --offload-activations --min-params-to-wrap",
        Unneeded(
            "the largest batch is tried before training; lower --max-tokens and raise --update-freq if memory is short",
        ),
    ),
    ("--export", Unneeded("a model folder can be exported with `mae export`")),
    ("--truncate-source", Unneeded("pairs that are too long are left out")),
];
