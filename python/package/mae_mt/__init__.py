"""Translation and language models whose attention is a gated mixture of experts.

>>> from mae_mt import Translator
>>> translator = Translator("runs/de-en/checkpoint_best")
>>> translator.translate("guten morgen").text
'good morning'

Translator       translation models: texts to translations, scores, gates
LanguageModel    language models: scores of texts, texts that are continued
train            trains a model on a prepared folder
Study            results of a study, made by `mae reproduce`
bleu, chrf, ter  metrics with sacreBLEU's numbers; paired compares two systems
load_parameters  weights of a model folder as numpy arrays
"""

from ._mae import (
    Continuation,
    Error,
    Hypothesis,
    LanguageModel,
    Paired,
    Score,
    ScoredLine,
    Study,
    TokenStream,
    TrainedModel,
    Translation,
    TranslationResult,
    Translations,
    Translator,
    WrittenToken,
    __version__,
    bleu,
    chrf,
    load_parameters,
    paired,
    ter,
    train,
)

__all__ = [
    "Continuation",
    "Error",
    "Hypothesis",
    "LanguageModel",
    "Paired",
    "Score",
    "ScoredLine",
    "Study",
    "TokenStream",
    "TrainedModel",
    "Translation",
    "TranslationResult",
    "Translations",
    "Translator",
    "WrittenToken",
    "__version__",
    "bleu",
    "chrf",
    "load_parameters",
    "paired",
    "ter",
    "train",
]
