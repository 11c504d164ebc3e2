"""Verifies that a converted model translates as the run does: both translate the same sentences."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU

from mt.data.unsegmented_scripts import bleu_tokenizer
from mt.errors import EngineError
from mt.inference.engines import Engine
from mt.inference.loaded_model import LoadedModel
from mt.inference.model_translator import ModelTranslator
from mt.inference.translator import Translator
from mt.search.strategy import Beam, Strategy

STRATEGIES: dict[str, tuple[Strategy, int]] = {
    "greedy search": (None, 200), "beam of 5": (Beam(5, 1.0, "mean"), 50)
}  # fmt: skip
_MIN_SAME = 0.98
"""The share of sentences that must have the same translation; rounding decides a few near-ties otherwise."""
_MOST_BLEU_LOST = 1.0
Translate = Callable[..., list[str]]


class Agreement(NamedTuple):
    """The translations of the run and of the converted model with one decoding strategy."""

    strategy: str
    num_sentences: int
    num_same: int
    our_bleu: float
    """BLEU of the translations by `mt translate`, except for copied words."""
    their_bleu: float


def verify(
    loaded: LoadedModel,
    exported: Translate,
    pairs: Sequence[tuple[str, str]],
    *,
    exact: Collection[str] = tuple(STRATEGIES),
) -> list[Agreement]:
    """Compare translations of validation sentences; ``exact`` names the strategies that must agree."""
    own = translator_of(loaded, ModelTranslator(loaded).engine)
    agreements = []
    for name, (strategy, most) in STRATEGIES.items():
        texts, references = zip(*pairs[:most], strict=True)
        ours, theirs = own.translate(texts, strategy=strategy), exported(texts, strategy=strategy)
        our_bleu, their_bleu = bleu(ours, references), bleu(theirs, references)
        differing = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
        agreements.append(Agreement(name, len(texts), len(texts) - len(differing), our_bleu, their_bleu))
        differs = name in exact and len(differing) > max(1, (1 - _MIN_SAME) * len(texts))
        if differs or our_bleu - their_bleu > _MOST_BLEU_LOST:
            raise EngineError(
                f"the exported model does not translate like the run: with {name}, {len(differing)} of "
                f"{len(texts)} sentences differ, such as {differing[0][0]!r}, exported {differing[0][1]!r}, "
                f"and BLEU changes from {our_bleu:.2f} to {their_bleu:.2f}. Nothing was kept. Export in "
                "float32; if that does not help, please report this."
            )
    return agreements


def translator_of(loaded: LoadedModel, engine: Engine) -> Translator:
    """Translates with an engine by the rules of a model; without copying, which not all libraries can."""
    facts = replace(loaded.facts, copies_words=False)
    return Translator(engine, facts, loaded.src_tokenizer, loaded.tgt_tokenizer)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU, as `mt evaluate` computes it."""
    metric = BLEU(tokenize=bleu_tokenizer(references))
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)
