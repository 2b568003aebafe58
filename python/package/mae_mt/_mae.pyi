"""Types of the compiled module."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import Any, Literal, final, overload

import numpy as np
from numpy.typing import NDArray

_Path = str | PathLike[str]
_Floats = NDArray[np.float32]

__version__: str

__all__ = [
    "Error",
    "Continuation",
    "LanguageModel",
    "ScoredLine",
    "TokenStream",
    "WrittenToken",
    "Paired",
    "Score",
    "bleu",
    "chrf",
    "paired",
    "run_program",
    "ter",
    "TranslationResult",
    "load_parameters",
    "Study",
    "TrainedModel",
    "train",
    "Hypothesis",
    "Translation",
    "Translations",
    "Translator",
    "__version__",
]

class Error(RuntimeError): ...

@final
class Translation:
    @property
    def text(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def tokens(self) -> list[str]: ...
    @property
    def log_probs(self) -> _Floats: ...
    @property
    def nbest(self) -> list[Hypothesis]: ...
    @property
    def source(self) -> str: ...
    @property
    def unknown_tokens(self) -> int: ...
    @property
    def cut_tokens(self) -> int: ...
    @property
    def gates(self) -> dict[str, _Floats] | None: ...
    def _repr_html_(self) -> str: ...

@final
class Hypothesis:
    @property
    def text(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def tokens(self) -> list[str]: ...
    @property
    def log_probs(self) -> _Floats: ...
    @property
    def gates(self) -> dict[str, _Floats] | None: ...

@final
class TranslationResult:
    @property
    def hypotheses(self) -> list[list[str]]: ...
    @property
    def scores(self) -> list[float]: ...

@final
class Translations(Iterator[Translation]):
    def __iter__(self) -> Translations: ...
    def __next__(self) -> Translation: ...

@final
class Translator:
    def __new__(
        cls,
        path: _Path | Sequence[_Path],
        device: str = "auto",
        compute_type: str = "auto",
    ) -> Translator: ...
    @overload
    def translate(  # type: ignore[overload-overlap]
        self,
        text: str,
        *,
        beam: int = 5,
        nbest: int = 1,
        lenpen: float = 1.0,
        unkpen: float = 0.0,
        min_len: int = 1,
        max_len_a: float = 0.0,
        max_len_b: int = 200,
        no_repeat_ngram_size: int = 0,
        temperature: float = 1.0,
        sampling: bool = False,
        topk: int | None = None,
        topp: float | None = None,
        diverse_groups: int = 1,
        diverse_strength: float = 0.5,
        seed: int = 1,
        experts: str = "mix",
        gates: bool = False,
        prefix: str | Iterable[str] | None = None,
        tokenized: bool = False,
        pieces: bool = False,
    ) -> Translation: ...
    @overload
    def translate(
        self,
        text: Iterable[str],
        *,
        beam: int = 5,
        nbest: int = 1,
        lenpen: float = 1.0,
        unkpen: float = 0.0,
        min_len: int = 1,
        max_len_a: float = 0.0,
        max_len_b: int = 200,
        no_repeat_ngram_size: int = 0,
        temperature: float = 1.0,
        sampling: bool = False,
        topk: int | None = None,
        topp: float | None = None,
        diverse_groups: int = 1,
        diverse_strength: float = 0.5,
        seed: int = 1,
        experts: str = "mix",
        gates: bool = False,
        prefix: str | Iterable[str] | None = None,
        tokenized: bool = False,
        pieces: bool = False,
    ) -> list[Translation]: ...
    def translate_iterable(
        self,
        lines: Iterable[str],
        *,
        batch: int = 1024,
        beam: int = 5,
        nbest: int = 1,
        lenpen: float = 1.0,
        experts: str = "mix",
        gates: bool = False,
        tokenized: bool = False,
    ) -> Translations: ...
    def translate_batch(
        self,
        source: list[list[str]],
        target_prefix: list[list[str] | None] | None = None,
        *,
        max_batch_size: int = 0,
        batch_type: str = "examples",
        beam_size: int = 2,
        num_hypotheses: int = 1,
        length_penalty: float = 1.0,
        no_repeat_ngram_size: int = 0,
        disable_unk: bool = False,
        max_input_length: int = 1024,
        max_decoding_length: int = 256,
        min_decoding_length: int = 1,
        return_scores: bool = False,
        sampling_topk: int = 1,
        sampling_topp: float = 1.0,
        sampling_temperature: float = 1.0,
    ) -> list[TranslationResult]: ...
    @overload
    def score(  # type: ignore[overload-overlap]
        self, lines: str, translations: str, *, experts: str = "mix", tokenized: bool = False
    ) -> _Floats: ...
    @overload
    def score(
        self,
        lines: Iterable[str],
        translations: Iterable[str],
        *,
        experts: str = "mix",
        tokenized: bool = False,
    ) -> list[_Floats]: ...
    @property
    def device(self) -> str: ...
    @property
    def languages(self) -> tuple[str, str] | None: ...
    @property
    def text_rules(self) -> str: ...
    @property
    def system(self) -> str: ...

@final
class ScoredLine:
    @property
    def log_prob(self) -> float: ...
    @property
    def tokens(self) -> list[str]: ...
    @property
    def log_probs(self) -> _Floats: ...
    @property
    def unknown_tokens(self) -> int: ...

@final
class Continuation:
    @property
    def text(self) -> str: ...
    @property
    def continuation(self) -> str: ...
    @property
    def tokens(self) -> list[str]: ...
    @property
    def end(self) -> Literal["line", "length"]: ...
    @property
    def unknown_tokens(self) -> int: ...
    @property
    def cut_tokens(self) -> int: ...

@final
class WrittenToken:
    @property
    def token(self) -> str: ...
    @property
    def log_prob(self) -> float: ...
    @property
    def text(self) -> str: ...

@final
class TokenStream(Iterator[WrittenToken]):
    def __iter__(self) -> TokenStream: ...
    def __next__(self) -> WrittenToken: ...

@final
class LanguageModel:
    def __new__(
        cls, path: _Path, device: str = "auto", compute_type: str = "auto"
    ) -> LanguageModel: ...
    @overload
    def score(  # type: ignore[overload-overlap]
        self, text: str, *, context: int | None = None, experts: str = "mix", seed: int = 0
    ) -> ScoredLine: ...
    @overload
    def score(
        self, text: Iterable[str], *, context: int | None = None, experts: str = "mix", seed: int = 0
    ) -> list[ScoredLine]: ...
    @overload
    def continue_text(  # type: ignore[overload-overlap]
        self,
        text: str,
        *,
        max_len: int = 50,
        sampling: bool = False,
        topk: int | None = None,
        topp: float | None = None,
        temperature: float = 1.0,
        seed: int = 1,
        unknown: bool = True,
    ) -> Continuation: ...
    @overload
    def continue_text(
        self,
        text: Iterable[str],
        *,
        max_len: int = 50,
        sampling: bool = False,
        topk: int | None = None,
        topp: float | None = None,
        temperature: float = 1.0,
        seed: int = 1,
        unknown: bool = True,
    ) -> list[Continuation]: ...
    def stream(
        self,
        prompt: str,
        *,
        max_len: int = 50,
        sampling: bool = False,
        topk: int | None = None,
        topp: float | None = None,
        temperature: float = 1.0,
        seed: int = 1,
        unknown: bool = True,
    ) -> TokenStream: ...

@final
class TrainedModel:
    @property
    def model(self) -> PathLike[str]: ...
    @property
    def folder(self) -> PathLike[str]: ...
    @property
    def updates(self) -> int: ...
    @property
    def epochs(self) -> int: ...
    @property
    def parameters(self) -> int: ...
    def _repr_html_(self) -> str: ...

def train(
    data: _Path,
    recipe: str,
    *,
    save_dir: _Path,
    device: str = "auto",
    compute_type: str = "auto",
    callback: Callable[[dict[str, Any]], object] | None = None,
    keys: dict[str, Any] | None = None,
    **train: Any,
) -> TrainedModel: ...

@final
class Study:
    def __new__(cls, study: str, out: _Path) -> Study: ...
    @staticmethod
    def run(
        study: str,
        out: _Path,
        *,
        data: _Path | None = None,
        only: list[str] | None = None,
        seeds: list[int] | None = None,
        max_epoch: int | None = None,
        max_update: int | None = None,
        device: str = "auto",
        compute_type: str = "auto",
        callback: Callable[[dict[str, Any]], object] | None = None,
        keys: dict[str, Any] | None = None,
    ) -> Study: ...
    @property
    def title(self) -> str: ...
    @property
    def runs(self) -> list[dict[str, Any]]: ...
    @property
    def comparison(self) -> dict[str, Any]: ...
    @property
    def missing(self) -> list[str]: ...
    def _repr_html_(self) -> str: ...

@final
class Score:
    @property
    def score(self) -> float: ...
    @property
    def signature(self) -> str: ...
    @property
    def name(self) -> str: ...
    def __float__(self) -> float: ...

@final
class Paired:
    @property
    def baseline(self) -> float: ...
    @property
    def system(self) -> float: ...
    @property
    def p_value(self) -> float: ...

_References = list[str] | list[list[str]]

def bleu(translations: list[str], references: _References, *, lowercase: bool = False) -> Score: ...
def chrf(translations: list[str], references: _References, *, word_order: int = 0) -> Score: ...
def ter(translations: list[str], references: _References) -> Score: ...
def paired(
    baseline: list[str],
    system: list[str],
    references: _References,
    *,
    metric: str = "bleu",
    method: str = "bootstrap",
    samples: int | None = None,
    seed: int = 12345,
) -> Paired: ...
def load_parameters(path: _Path) -> dict[str, _Floats]: ...

def run_program(arguments: list[str]) -> int: ...
