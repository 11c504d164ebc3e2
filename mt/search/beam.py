"""Beam search: keeps the few likeliest partial hypotheses of each sentence (Sutskever et al. 2014)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mt.search.constraints import ConstrainedRows
from mt.search.copying import Copying
from mt.search.greedy import those_that_stay
from mt.search.hypothesis import Hypothesis, NotFiniteError, normalised_score
from mt.search.model import CacheT, EncoderDecoder
from mt.search.request import SearchRequest
from mt.search.strategy import Beam
from mt.search.vocabulary import block_maxima, log_normalisers, tokens_of
from mt.special_tokens import BOS_ID, EOS_ID, PAD_ID


def beam_search(model: EncoderDecoder[CacheT], request: SearchRequest, beam: Beam) -> list[list[Hypothesis]]:
    """Translate a batch, keeping N = ``beam.size`` partial hypotheses of each sentence.

    A partial hypothesis that continues with EOS and is among the best N is finished. A sentence is done when
    it has N finished hypotheses or more, of which the best N are kept, or when it reaches its limit. With
    N = 1 this is greedy search.

    Args:
        model: An encoder-decoder.
        request: The batch and its rules.
        beam: N, and how finished hypotheses are ranked.

    Returns:
        The hypotheses of each sentence, best first; unfinished ones only if there is no finished one.
    """
    limits, device, src_mask, beam_size = request.limits, request.src_ids.device, request.src_mask, beam.size
    copying = Copying(request)
    rules = ConstrainedRows(request, copying)
    cache = model.start_cache(model.encode(request.src_ids, src_mask), src_mask, max(limits))
    found = _Found(limits, beam_size, copying)
    partial = _first(len(limits), device)
    prefixes = request.constraints.prefixes or [()] * len(limits)
    for step in range(1, max(limits) + 1):
        request.before_each_step()
        # Not assigned to a name, so that these logits are freed before the next step computes its own.
        candidates = _best_continuations(
            copying.decode_step(model, partial.newest.flatten(), cache), partial, rules, beam_size
        )
        after_prefix = [len(prefixes[sentence]) == step - 1 > 0 for sentence in found.sentences]
        if True in after_prefix:
            candidates = candidates.ending_with_the_likeliest(torch.tensor(after_prefix, device=device))
        ends = candidates.newest == EOS_ID
        is_finished = ends[:, :beam_size] & candidates.scores[:, :beam_size].isfinite()
        # In a step in which no sentence leaves, the host waits for the device only here.
        found.add_finished(candidates, is_finished.tolist())
        # A stable sort puts those without EOS first and keeps their order.
        partial = candidates.take(ends.int().argsort(dim=1, stable=True)[:, :beam_size])
        found.add_unfinished(partial, step)
        num_sentences, stay = len(found.sentences), found.leave()
        if not stay:
            break
        places = None
        if len(stay) < num_sentences:
            places = torch.tensor(stay, device=device)
            partial = partial.of_sentences(places)
        rows = partial.rows.flatten()
        cache.select(rows, places)
        rules.select(rows, partial.newest.flatten())
    return [
        sorted(
            hypotheses,
            key=lambda each: -normalised_score(each, beam.length_penalty, beam.length_normalization),
        )[:beam_size]
        for hypotheses in found.read()
    ]


@dataclass(frozen=True)
class _Hypotheses:
    """M hypotheses of each sentence, finished or not."""

    ids: Tensor
    """``(B, M, T)``, starting with BOS."""
    scores: Tensor
    """``(B, M)``, their log-probabilities."""
    rows: Tensor
    """``(B, M)``, the rows of the cache that they continue."""

    @property
    def newest(self) -> Tensor:
        """``(B, M)``, the last token of each."""
        return self.ids[:, :, -1]

    def take(self, places: Tensor) -> "_Hypotheses":
        """The hypotheses at ``(B, N)`` positions among the M of each sentence."""
        ids = self.ids.gather(1, places[:, :, None].expand(-1, -1, self.ids.size(2)))
        return _Hypotheses(ids, self.scores.gather(1, places), self.rows.gather(1, places))

    def ending_with_the_likeliest(self, sentences: Tensor) -> "_Hypotheses":
        """Where ``sentences`` ``(B,)`` is true, EOS ends a hypothesis only if that is the best.

        A beam starts again with one hypothesis after a given prefix, where short ones would crowd out the
        others. CTranslate2 has the same rule.
        """
        is_late_end = (self.newest == EOS_ID) & sentences[:, None]
        is_late_end[:, 0] = False
        ids = self.ids.clone()
        ids[:, :, -1] = ids[:, :, -1].masked_fill(is_late_end, PAD_ID)
        return _Hypotheses(ids, self.scores.masked_fill(is_late_end, -torch.inf), self.rows)

    def of_sentences(self, places: Tensor) -> "_Hypotheses":
        """The hypotheses of these sentences ``(B',)``."""
        return _Hypotheses(self.ids[places], self.scores[places], self.rows[places])


def _first(num_sentences: int, device: torch.device) -> _Hypotheses:
    """The empty hypotheses that a search begins with, one for each sentence."""
    ids = torch.full((num_sentences, 1, 1), BOS_ID, dtype=torch.long, device=device)
    rows = torch.arange(num_sentences, device=device)[:, None]
    return _Hypotheses(ids, torch.zeros(num_sentences, 1, device=device), rows)


def _best_continuations(
    logits: Tensor, partial: _Hypotheses, rules: ConstrainedRows, beam_size: int
) -> _Hypotheses:
    """Find the 2N likeliest continuations of each sentence, of which at most N end with EOS.

    Args:
        logits: ``(B * M, V)``.
        partial: The M partial hypotheses of each sentence: one in the first step, N later.
        rules: Which tokens are forbidden.
        beam_size: N.

    Returns:
        2N continuations of each sentence, best first.
    """
    batch, num_partial = partial.scores.shape
    vocab_size = logits.size(-1)
    rules.exclude(logits)
    # The tokens that are left share all probability.
    added = partial.scores.view(-1, 1) - log_normalisers(logits)
    rules.force(logits)
    # The best 2N continuations of a sentence are in the 2N blocks with the highest maxima.
    maxima = (block_maxima(logits) + added).view(batch, -1)
    num_blocks = maxima.size(1) // num_partial
    blocks = maxima.topk(min(2 * beam_size, maxima.size(1))).indices
    tokens = tokens_of(blocks % num_blocks, vocab_size)
    beams = (blocks // num_blocks).repeat_interleave(tokens.size(1) // blocks.size(1), dim=1)
    rows = beams + torch.arange(0, batch * num_partial, num_partial, device=logits.device)[:, None]
    is_token = tokens < vocab_size
    tokens.clamp_(max=vocab_size - 1)
    values = (logits[rows, tokens] + added[rows, 0]).masked_fill_(~is_token, -torch.inf)
    # A single hypothesis may have fewer continuations than that.
    num_missing = max(0, 2 * beam_size - values.size(1))
    best = F.pad(values, (0, num_missing), value=-torch.inf).topk(2 * beam_size)
    places = best.indices.clamp_(max=values.size(1) - 1)
    rows = rows.gather(1, places)
    newest = tokens.gather(1, places)[:, :, None]
    return _Hypotheses(torch.cat((partial.ids.flatten(0, 1)[rows], newest), dim=2), best.values, rows)


@dataclass(frozen=True)
class _Ended:
    """The hypotheses that ended in one step."""

    of_step: _Hypotheses
    """All hypotheses of that step."""
    copied: Tensor | None
    """``(B * M, T - 1)``, as returned by `Copying.copied`."""
    places: Sequence[int]
    """The indices of those that ended, among the ``B * M``."""
    sentences: Sequence[int]
    """The sentence of each."""
    finished: bool


class _Found:
    """The sentences of a search, and their hypotheses.

    Hypotheses stay on the device until the search is over, because each read would wait for the device.
    """

    def __init__(self, limits: Sequence[int], beam_size: int, copying: Copying) -> None:
        self.sentences = list(range(len(limits)))
        """The sentences that are left in the batch, in order."""
        self._limits = limits
        self._beam_size = beam_size
        self._copying = copying
        self._num_finished = [0] * len(limits)
        self._is_done = [False] * len(limits)
        self._ended: list[_Ended] = []

    def add_finished(self, candidates: _Hypotheses, is_finished: Sequence[Sequence[bool]]) -> None:
        """Add the candidates for which ``(B, N)`` is true; a sentence is done when it has N or more."""
        width = candidates.scores.size(1)
        places: list[int] = []
        sentences: list[int] = []
        for number, (sentence, flags) in enumerate(zip(self.sentences, is_finished, strict=True)):
            if not self._is_done[sentence] and True in flags:
                new = list(compress(range(number * width, (number + 1) * width), flags))
                places += new
                sentences += repeat(sentence, len(new))
                self._num_finished[sentence] += len(new)
                self._is_done[sentence] = self._num_finished[sentence] >= self._beam_size
        self._keep(candidates, places, sentences, finished=True)

    def add_unfinished(self, partial: _Hypotheses, step: int) -> None:
        """Add the hypotheses of sentences that reach their limit; `read` needs them if none has finished."""
        places: list[int] = []
        sentences: list[int] = []
        for number, sentence in enumerate(self.sentences):
            if self._limits[sentence] == step and not self._is_done[sentence]:
                self._is_done[sentence] = True
                places += range(number * self._beam_size, (number + 1) * self._beam_size)
                sentences += repeat(sentence, self._beam_size)
        self._keep(partial, places, sentences, finished=False)

    def leave(self) -> list[int]:
        """Remove finished sentences from the batch; return the positions of the others, in order."""
        stay = those_that_stay([self._is_done[sentence] for sentence in self.sentences])
        self.sentences = [self.sentences[place] for place in stay]
        return stay

    def read(self) -> list[list[Hypothesis]]:
        """Read the hypotheses of each sentence from the device, in the order in which they were found."""
        found: list[list[Hypothesis]] = [[] for _ in self._limits]
        overflowed: set[int] = set()
        device = self._ended[0].of_step.ids.device
        places = torch.tensor([place for each in self._ended for place in each.places], device=device)
        parts = list(
            zip(self._ended, torch.split(places, [len(each.places) for each in self._ended]), strict=True)
        )
        ids = _read([each.of_step.ids.flatten(0, 1)[own] for each, own in parts])
        scores = _read([each.of_step.scores.flatten()[own, None] for each, own in parts])
        copied: Iterator[list[int]] = repeat([])
        references = [each.copied[own] for each, own in parts if each.copied is not None]
        if references:
            copied = _read(references)
        for each in self._ended:
            for sentence in each.sentences:
                tokens, [score], positions = next(ids), next(scores), next(copied)
                if math.isnan(score):
                    overflowed.add(sentence)
                elif each.finished or (math.isfinite(score) and not self._num_finished[sentence]):
                    written = tokens[1:-1] if each.finished else tokens[1:]
                    copies = [position for position in positions if position >= 0]
                    found[sentence].append(Hypothesis(written, score, each.finished, copies))
        overflowed |= {sentence for sentence, hypotheses in enumerate(found) if not hypotheses}
        if overflowed:
            raise NotFiniteError(sorted(overflowed))
        return found

    def _keep(
        self, of_step: _Hypotheses, places: Sequence[int], sentences: Sequence[int], *, finished: bool
    ) -> None:
        if places:
            copied = self._copying.copied(of_step.rows.flatten(), of_step.newest.flatten())
            self._ended.append(_Ended(of_step, copied, places, sentences, finished))


def _read(parts: Sequence[Tensor]) -> Iterator[list[Any]]:
    """Yield the rows of several tensors ``(n, T)`` of different T, all read at once."""
    values = torch.cat([part.flatten() for part in parts]).tolist()
    start = 0
    for part in parts:
        for _ in range(part.size(0)):
            yield values[start : start + part.size(1)]
            start += part.size(1)
