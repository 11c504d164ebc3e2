"""Verifies that an exported folder translates as the run does: both translate the same sentences."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch

from mt.display import counted
from mt.errors import ExportError
from mt.inference.engine.quality import bleu
from mt.inference.loaded_model import LoadedModel
from mt.inference.text_search import TextSearch
from mt.inference.torch_engine import TorchEngine
from mt.search.strategy import Beam, Strategy

STRATEGIES: dict[str, Strategy] = {"greedy search": None, "beam of 5": Beam(5, 1.0, "mean")}
NUM_SENTENCES = {"greedy search": 200, "beam of 5": 50}
MIN_SAME = 0.98
"""The share of sentences that must have the same translation; rounding decides a few near-ties otherwise."""
MOST_BLEU_LOST = 1.0
"""How many points of BLEU an export may lose."""
Translate = Callable[[Sequence[str], Strategy], list[str]]


@dataclass(frozen=True)
class Agreement:
    """The translations of the run and of the exported folder with one decoding strategy."""

    strategy: str
    num_sentences: int
    num_same: int
    our_bleu: float
    """BLEU of the translations by `mt translate`, except for copied words."""
    their_bleu: float
    our_speed: float
    their_speed: float
    """Sentences per second, on this machine with the same number of threads."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What ``asdict`` has made into plain values, by this version or an earlier one."""
        return cls(**{field.name: content[field.name] for field in fields(cls)})


def verify(
    loaded: LoadedModel,
    exported: Translate,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    exact: Collection[str] = tuple(STRATEGIES),
) -> list[Agreement]:
    """Translate validation sentences with both models, and compare.

    Args:
        loaded: The model of the run, on the CPU.
        exported: Translates with the exported folder.
        sources: Validation sentences.
        references: Their translations.
        exact: The decoding strategies with which nearly all translations must be the same.
    """
    loaded.model.eval()
    # With the rules that an exported model can have: no word is copied.
    own = TextSearch(
        TorchEngine(
            loaded.model,
            torch.device("cpu"),
            batch_sentences=loaded.config.validation.batch_sentences,
        ),
        loaded.src_tokenizer,
        loaded.tgt_tokenizer,
        max_length=loaded.config.data.max_length,
        target_ratio=loaded.target_ratio,
    )
    agreements = []
    for name, strategy in STRATEGIES.items():
        some = list(sources[: NUM_SENTENCES[name]])
        ours, our_speed = _timed(lambda texts, how: own.translate(texts, strategy=how), some, strategy)
        theirs, their_speed = _timed(exported, some, strategy)
        num_same = sum(one == other for one, other in zip(ours, theirs, strict=True))
        our_bleu, their_bleu = (bleu(texts, references[: len(some)]) for texts in (ours, theirs))
        agreements.append(Agreement(name, len(some), num_same, our_bleu, their_bleu, our_speed, their_speed))
        differing = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
        if name in exact and len(differing) > max(1, (1 - MIN_SAME) * len(some)):
            raise ExportError(
                f"the exported model does not translate like the run: {counted(len(differing), 'sentence')} "
                f"of {len(some)} differ with {name}, such as {differing[0][0]!r}, exported "
                f"{differing[0][1]!r}. Nothing was kept; please report this."
            )
        if our_bleu - their_bleu > MOST_BLEU_LOST:
            raise ExportError(
                f"the exported model translates worse than the run: with {name}, BLEU falls from "
                f"{our_bleu:.2f} to {their_bleu:.2f}, but may fall by at most {MOST_BLEU_LOST:g}. Nothing "
                "was kept. Export in float32."
            )
    return agreements


def _timed(translate: Translate, texts: Sequence[str], strategy: Strategy) -> tuple[list[str], float]:
    """The translations, and the number of sentences per second."""
    start = time.perf_counter()
    translations = translate(texts, strategy)
    return translations, len(texts) / (time.perf_counter() - start)
