"""Verifies that an exported folder translates as the run does: both translate the same sentences."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import torch

from mt.data.batches.batch import collate
from mt.display import counted
from mt.errors import ExportError
from mt.inference.engine.quality import bleu
from mt.inference.engine.same_rules import Nudged, Steered
from mt.inference.loaded_model import LoadedModel
from mt.inference.score import label_log_probs
from mt.inference.segments import Segment, as_translation
from mt.inference.text_search import TextSearch
from mt.inference.torch_engine import TorchEngine
from mt.search.ensemble import Member
from mt.search.hypothesis import Hypothesis
from mt.search.strategy import Beam, Strategy
from mt.transformer.packed_transformer import PackedTransformer

NUM_SENTENCES = 200
NEAR_TIE = 1e-4
"""Two outputs are a near-tie if changing log-probabilities by at most this turns one into the other."""
NUM_NUDGES = 16
NUM_LISTED = 3
"""How many mismatches that are not near-ties are examined, before the rest is only counted."""
MOST_BLEU_LOST = 1.0
"""How many points of BLEU an export in a lower precision may lose."""
STRATEGIES: dict[str, Strategy] = {"greedy search": None, "beam of 5": Beam(5, 1.0, "mean")}


@dataclass(frozen=True)
class Mismatch:
    """A sentence, or a segment of a long one, that the run and the exported folder translate differently."""

    line: int
    source: str
    ours: str
    theirs: str
    our_score: float
    their_score: float
    """The log-probability of each output, both by the model of the run."""
    is_near_tie: bool


@dataclass(frozen=True)
class Agreement:
    """The outputs of the run and of the exported folder with one decoding strategy."""

    strategy: str
    num_sentences: int
    """Lines of the validation split; search translates a long one in segments."""
    num_same: int
    """Sentences with the same tokens."""
    mismatches: Sequence[Mismatch]
    """In float32 all of them, unless verification failed."""
    our_bleu: float
    """BLEU of the translations by `mt translate`, except for copied words."""
    their_bleu: float
    our_speed: float
    their_speed: float
    """Sentences per second, on this machine with the same number of threads."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """What ``asdict`` has made into plain values."""
        return cls(**{**content, "mismatches": [Mismatch(**each) for each in content["mismatches"]]})


class Verifier:
    """The run's side of the comparison: the sentences, their references and its own outputs."""

    def __init__(self, loaded: LoadedModel, sources: Sequence[str], references: Sequence[str]) -> None:
        """Prepare the run's own search.

        Args:
            loaded: The model, on the CPU.
            sources: Validation sentences.
            references: Their translations.
        """
        self._loaded = loaded
        self._sources, self._references = list(sources), list(references)
        loaded.model.eval()
        # As in `mt translate`.
        self._model: Member = PackedTransformer(loaded.model, "float32")
        self._own = self._search_with(self._model)

    def compare(self, exported: TextSearch, name: str, strategy: Strategy, *, exact: bool) -> Agreement:
        """Translate with both models.

        Args:
            exported: The folder, as loaded from disk.
            name: The name of the strategy.
            strategy: The strategy.
            exact: Whether all outputs must be the same, except for near-ties.
        """
        segments = self._own.read(self._sources)
        other_segments = exported.read(self._sources)
        if [each.tokens for each in segments] != [each.tokens for each in other_segments]:
            raise ExportError("the exported tokenizer splits the validation sentences into different tokens.")
        ours, our_seconds = _timed(lambda: self._own.search(segments, strategy))
        theirs, their_seconds = _timed(lambda: exported.search(segments, strategy))
        for one, *_ in ours:
            if exported.tgt_tokenizer.decode(one.ids) != self._own.tgt_tokenizer.decode(one.ids):
                raise ExportError("the exported tokenizer turns the same tokens into a different text.")
        differing = _differing(ours, theirs)
        mismatches = self._explain(segments, ours, theirs, differing, strategy) if exact else []
        texts = [
            [best.text for best, *_ in side.as_lines(len(self._sources), segments, found, strategy)]
            for side, found in ((self._own, ours), (exported, theirs))
        ]
        our_bleu, their_bleu = (bleu(each, self._references) for each in texts)
        num_sentences = len(self._sources)
        agreement = Agreement(
            name,
            num_sentences,
            num_sentences - _num_lines(segments, differing),
            mismatches,
            our_bleu,
            their_bleu,
            num_sentences / our_seconds,
            num_sentences / their_seconds,
        )
        _refuse_other_translations(agreement)
        if not exact:
            _refuse_lost_bleu(agreement)
        return agreement

    def _search_with(self, model: Member) -> TextSearch:
        """Search with the rules that an exported model can have: no word is copied."""
        loaded = self._loaded
        return TextSearch(
            TorchEngine(
                model,
                torch.device("cpu"),
                batch_sentences=loaded.config.validation.batch_sentences,
            ),
            loaded.src_tokenizer,
            loaded.tgt_tokenizer,
            max_length=loaded.config.data.max_length,
            target_ratio=loaded.target_ratio,
        )

    def _explain(
        self,
        segments: Sequence[Segment],
        ours: Sequence[Sequence[Hypothesis]],
        theirs: Sequence[Sequence[Hypothesis]],
        differing: Sequence[int],
        strategy: Strategy,
    ) -> list[Mismatch]:
        """Examine the sentences that differ until `NUM_LISTED` of them are not near-ties."""
        found: list[Mismatch] = []
        for place in differing:
            if sum(not each.is_near_tie for each in found) == NUM_LISTED:
                break
            segment, one, other = segments[place], ours[place][0], theirs[place][0]
            our_text, their_text = (
                as_translation(segment, each, each.score, self._own.tgt_tokenizer).text
                for each in (one, other)
            )
            our_score, their_score = self._score(segment, one), self._score(segment, other)
            is_near_tie = self._is_near_tie(segment, one, other, strategy)
            source = self._sources[segment.place]
            found.append(
                Mismatch(segment.line, source, our_text, their_text, our_score, their_score, is_near_tie)
            )
        return found

    @torch.inference_mode()
    def _score(self, segment: Segment, hypothesis: Hypothesis) -> float:
        """The log-probability of a hypothesis by the model of the run."""
        batch = collate([[token.id for token in segment.tokens]], [list(hypothesis.ids)])
        if not hypothesis.finished:
            # It has no EOS, and may be as long as the model can read.
            batch = replace(
                batch,
                tgt_ids=batch.tgt_ids[:, :-1],
                labels=batch.labels[:, :-1],
            )
        return float(label_log_probs(self._loaded.model, batch).sum())

    def _is_near_tie(
        self, segment: Segment, ours: Hypothesis, theirs: Hypothesis, strategy: Strategy
    ) -> bool:
        """Whether our own search finds theirs if no logit is changed by more than half of `NEAR_TIE`.

        A beam may also have dropped a third hypothesis because of a near-tie, which random changes can show.
        """
        steered = Steered(self._model, ours.ids, theirs.ids, NEAR_TIE / 2)
        nudged = (Nudged(self._model, NEAR_TIE / 2, seed) for seed in range(NUM_NUDGES))
        return any(
            list(self._search_with(changed).search([segment], strategy)[0][0].ids) == list(theirs.ids)
            for changed in chain([steered], nudged)
        )


def _differing(ours: Sequence[Sequence[Hypothesis]], theirs: Sequence[Sequence[Hypothesis]]) -> list[int]:
    """The indices of the segments whose best hypotheses have different tokens."""
    return [
        place
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True))
        if list(one[0].ids) != list(other[0].ids)
    ]


def _num_lines(segments: Sequence[Segment], places: Sequence[int]) -> int:
    """How many lines have one of these segments."""
    return len({segments[place].place for place in places})


def _timed(
    work: Callable[[], list[list[Hypothesis]]],
) -> tuple[list[list[Hypothesis]], float]:
    start = time.perf_counter()
    found = work()
    return found, time.perf_counter() - start


def _refuse_other_translations(agreement: Agreement) -> None:
    real = [each for each in agreement.mismatches if not each.is_near_tie]
    if real:
        num_differing = agreement.num_sentences - agreement.num_same
        listed = "; ".join(
            f"sentence {each.line} ({each.our_score:.4f}) {each.ours!r}, exported ({each.their_score:.4f}) "
            f"{each.theirs!r}"
            for each in real
        )
        raise ExportError(
            f"the exported model does not translate like the run: {counted(num_differing, 'sentence')} of "
            f"{agreement.num_sentences} differ with {agreement.strategy}. With log-probabilities by the "
            f"run's model: {listed}. Nothing was kept; please report this."
        )


def _refuse_lost_bleu(agreement: Agreement) -> None:
    lost = agreement.our_bleu - agreement.their_bleu
    if lost > MOST_BLEU_LOST:
        raise ExportError(
            f"the exported model translates worse than the run: with {agreement.strategy}, BLEU falls from "
            f"{agreement.our_bleu:.2f} to {agreement.their_bleu:.2f}, but may fall by at most "
            f"{MOST_BLEU_LOST:g}. Nothing was kept. Export in float32."
        )
