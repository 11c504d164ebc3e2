"""Verifies a model that was converted for another library: it must score and translate as torch does.

The validation sentences for this are kept by the run, so that neither needs its corpus.
"""

import json
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np
from pydantic import TypeAdapter

from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import EngineError
from mt.files import read_bytes, write_atomically
from mt.inference.bleu import bleu
from mt.inference.engines import Engine, Sentence, Sentences
from mt.inference.loaded_model import LoadedModel
from mt.inference.model_translator import ModelTranslator
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam, Strategy
from mt.special_tokens import SPECIAL_TOKENS

_MOST_PAIRS, _LONGEST = 500, 2000
"""How many pairs are kept, and of how many characters a side at most."""
_MAX_BYTES = 16_000_000
_PAIRS = TypeAdapter(list[tuple[str, str]])
_NUM_RANDOM, _RANDOM_LENGTH = 64, 30
_MAX_DIFFERENCE = 1e-4
"""The largest difference of a log-probability that rounding explains, absolute and relative."""
_MOST_BLEU_LOST = 1.0
"""How much less BLEU a converted model may have than torch."""
STRATEGIES: dict[str, tuple[Strategy, int]] = {
    "greedy search": (None, 200), "beam of 5": (Beam(5, 1.0, "mean"), 50)
}  # fmt: skip
"""The decoding strategies that are compared, and on how many sentences."""
_MIN_SAME = 0.98
"""The share of sentences that must have the same translation; rounding decides a few near-ties otherwise."""
Pairs = Sequence[tuple[str, str]]
Translate = Callable[..., list[str]]
Score = Callable[[Sentences], list[list[float]]]


class Agreement(NamedTuple):
    """The translations of the run and of the converted model with one decoding strategy."""

    strategy: str
    num_sentences: int
    num_same: int
    our_bleu: float
    """BLEU of the translations by `mt translate`, except for copied words."""
    their_bleu: float


def keep_pairs(
    run: RunDirectory, pairs: Iterable[tuple[str, str]], tokenizers: Sequence[Tokenizer], max_length: int
) -> None:
    """Keep the first pairs that have text on both sides, as much as a model of ``max_length`` reads."""

    def fits(text: str, tokenizer: Tokenizer) -> bool:
        return bool(text.strip()) and len(text) <= _LONGEST and len(tokenizer.encode(text)) < max_length

    fitting = (pair for pair in pairs if all(map(fits, pair, tokenizers)))
    kept = [*islice(fitting, _MOST_PAIRS)]
    write_atomically(run.verification_file, json.dumps(kept, ensure_ascii=False, indent=1) + "\n")


def verification_pairs(run: RunDirectory) -> list[tuple[str, str]]:
    """The pairs that the run keeps; none if they are missing or damaged."""
    try:
        return _PAIRS.validate_json(read_bytes(run.verification_file, max_bytes=_MAX_BYTES))[:_MOST_PAIRS]
    except (OSError, ValueError):
        return []


def compare_scores(loaded: LoadedModel, score: Score) -> None:
    """Compare log-probabilities of random ids, which need no corpus, in float32."""
    drawn = random.Random(1)
    longest = min(_RANDOM_LENGTH, loaded.config.data.max_length - 1)

    def ids(tokenizer: Tokenizer) -> list[int]:
        return drawn.choices(range(len(SPECIAL_TOKENS), tokenizer.size), k=drawn.randint(1, longest))

    sentences = [
        Sentence(line, ids(loaded.src_tokenizer), ids(loaded.tgt_tokenizer)) for line in range(_NUM_RANDOM)
    ]
    ours = np.concatenate(ModelTranslator(loaded).engine.score(sentences))
    theirs = np.concatenate(score(sentences))
    if not np.allclose(theirs, ours, _MAX_DIFFERENCE, _MAX_DIFFERENCE):
        raise EngineError(
            f"the converted model computes something else: log-probabilities of random sentences differ by "
            f"{np.abs(theirs - ours).max():.2g}. Was its code changed (docs/change-the-model.md)?"
        )


def verify(
    loaded: LoadedModel,
    exported: Translate,
    pairs: Pairs,
    *,
    exact: Collection[str] = tuple(STRATEGIES),
) -> list[Agreement]:
    """Compare translations of validation sentences; ``exact`` names the strategies that must agree."""
    own = translator_of(loaded, ModelTranslator(loaded).engine)
    agreements = []
    for name, (strategy, most) in STRATEGIES.items():
        texts, references = zip(*pairs[:most], strict=True)
        ours = own.translate(texts, strategy=strategy)
        theirs = exported(texts, strategy=strategy)
        our_bleu = bleu(ours, references)
        their_bleu = bleu(theirs, references)
        differing = [(our, their) for our, their in zip(ours, theirs, strict=True) if our != their]
        num_same = len(texts) - len(differing)
        agreements.append(Agreement(name, len(texts), num_same, our_bleu, their_bleu))
        differs = name in exact and len(differing) > max(1, (1 - _MIN_SAME) * len(texts))
        if differs or our_bleu - their_bleu > _MOST_BLEU_LOST:
            raise EngineError(
                f"the exported model does not translate like the run: with {name}, {len(differing)} of "
                f"{len(texts)} sentences differ, such as {differing[0][0]!r}, exported {differing[0][1]!r}, "
                f"and BLEU changes from {our_bleu:.2f} to {their_bleu:.2f}. Nothing was kept. Export in "
                "float32; if that does not help, please report this."
            )
    return agreements


def bleu_of(loaded: LoadedModel, engine: Engine, pairs: Pairs) -> float:
    """BLEU of the translations of an engine."""
    sources, references = zip(*pairs, strict=True)
    return bleu(translator_of(loaded, engine).translate(sources), references)


def translator_of(loaded: LoadedModel, engine: Engine) -> Translator:
    """Translates with an engine by the rules of a model; without copying, which not all libraries can."""
    facts = replace(loaded.facts, copies_words=False, directions=())
    return Translator(engine, facts, loaded.src_tokenizer, loaded.tgt_tokenizer)
