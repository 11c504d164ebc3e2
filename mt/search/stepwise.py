"""What all decoding strategies share: one token of each row at a time, until every sentence is done.

A strategy only chooses how rows may continue. Here hypotheses end, sentences that are done leave the batch,
and what was found is kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mt.search.hypothesis import Hypothesis, NotFiniteError
from mt.search.request import CacheT, EncoderDecoder, SearchRequest
from mt.search.rules import RuledRows
from mt.special_tokens import BOS_ID, EOS_ID


class Candidates(NamedTuple):
    """M continuations of each of B sentences by one token, the best first."""

    tokens: Tensor
    """``(B, M)``."""
    scores: Tensor
    """``(B, M)``, of all tokens; minus infinity if there are fewer continuations."""
    rows: Tensor
    """``(B, M)``, the rows that they continue."""


@dataclass(frozen=True)
class Step:
    """What decides on the next token of R rows, which belong to B sentences."""

    number: int
    """The number of tokens in each row."""
    log_probs: Tensor
    """``(R, V)``, minus infinity for tokens that may not be written; only logits if no scores are needed."""
    scores: Tensor
    """``(R, 1)``, the summed log-probability of the tokens in each row."""
    sentences: Tensor
    """``(B,)``, the indices of the sentences that are left in the batch."""

    def continued_by(self, tokens: Tensor) -> Candidates:
        """Continue the only row of each sentence with a token ``(B, 1)``."""
        rows = torch.arange(len(tokens), device=tokens.device)[:, None]
        return Candidates(tokens, self.scores + self.log_probs.gather(1, tokens), rows)


def search_stepwise(
    model: EncoderDecoder[CacheT],
    request: SearchRequest,
    choose: Callable[[Step], Candidates],
    *,
    num_rows: int = 1,
) -> list[list[Hypothesis]]:
    """Translate a batch, with N = ``num_rows`` rows for each sentence after the first step.

    Of the candidates that ``choose`` returns, those that end with EOS and are among the best N are finished
    hypotheses, and the best N others are continued. A sentence is done when it has N finished hypotheses or
    more, or when it reaches its limit. Hypotheses are returned in the order in which they were found,
    unfinished ones only if there is no finished one.
    """
    device = request.src_ids.device
    rules, batch = RuledRows(request), _Batch(request, num_rows)
    cache = model.start_cache(model.encode(request.src_ids, request.src_mask), request.src_mask)
    sentences = torch.arange(len(request.limits), device=device)
    newest = torch.full_like(sentences, BOS_ID)
    scores = torch.zeros(len(sentences), 1, device=device)
    for number in range(max(request.limits)):
        request.before_each_step()
        # `rules.log_probs` calls `model.decode_step`, and excludes tokens. The step has no name, so that its
        # logits are freed before the next ones are computed.
        candidates = choose(Step(number, rules.log_probs(model, newest, cache), scores, sentences))
        tokens, scores, rows = (x.flatten() for x in candidates)
        # One tensor, because each read waits for the device. Float32 represents all integers up to 2^24.
        columns = tokens.float(), scores, rows.float(), rules.copied(rows, tokens).float()
        stay, continued = batch.add([_Candidate(*row) for row in torch.stack(columns, dim=1).tolist()])
        if not stay:
            break
        kept = torch.tensor(continued, device=device)
        newest, scores, rows = tokens[kept], scores[kept, None], rows[kept]
        left = torch.tensor(stay, device=device) if len(stay) < len(sentences) else None
        if left is not None:
            sentences = sentences[left]
        if left is not None or num_rows > 1:
            cache.select(rows, left)
        rules.select(rows, newest)
    return batch.hypotheses()


class _Candidate(NamedTuple):
    """A candidate on the host. All columns arrive in one tensor, in which ids are floats, exact to 2**24."""

    token: float
    score: float
    row: float
    copied: float
    """The source position that the token copies, or -1."""


class _Batch:
    """What has been written for the sentences of a batch, on the host."""

    def __init__(self, request: SearchRequest, num_rows: int) -> None:
        self._request = request
        self._num_rows = num_rows
        self._length = 0
        # Those that are left, in order.
        self._sentences = list(range(len(request.limits)))
        # The ids of each row, and the positions that they copy.
        self._rows: list[tuple[list[int], list[int]]] = [([], []) for _ in request.limits]
        self._finished: list[list[Hypothesis]] = [[] for _ in request.limits]
        self._is_done = [False] * len(request.limits)
        self._overflowed: list[int] = []

    def add(self, candidates: Sequence[_Candidate]) -> tuple[list[int], list[int]]:
        """Add the candidates of a step: positions of the sentences that stay, and indices of the continued.

        Both are empty if all sentences are done.
        """
        self._length += 1
        count = len(candidates) // len(self._sentences)
        continued: list[Sequence[int]] = []
        for position, sentence in enumerate(self._sentences):
            own = range(position * count, (position + 1) * count)
            # At most N end with EOS; if nothing else is left, the sentence is done, and its row is ignored.
            rest = [index for index in own if candidates[index].token != EOS_ID] or own
            continued.append(rest[: self._num_rows])
            if not self._is_done[sentence]:
                best = [candidates[index] for index in own[: self._num_rows]]
                others = [candidates[index] for index in rest[: self._num_rows]]
                self._is_done[sentence] = self._ends(sentence, best, others)
        stay = list(range(len(self._sentences)))
        # They leave in groups, because the cache is copied each time.
        if 4 * sum(self._is_done[sentence] for sentence in self._sentences) >= len(stay):
            stay = [position for position in stay if not self._is_done[self._sentences[position]]]
        self._sentences = [self._sentences[position] for position in stay]
        kept = [index for position in stay for index in continued[position]]
        self._rows = [self._written(candidates[index]) for index in kept]
        return stay, kept

    def _ends(self, sentence: int, best: Sequence[_Candidate], rest: Sequence[_Candidate]) -> bool:
        """Keep the hypotheses among the best candidates; return whether the sentence is done.

        ``rest`` are the best candidates without EOS.
        """
        finished, is_at_limit = self._finished[sentence], self._length == self._request.limits[sentence]
        finished += [
            self._hypothesis(candidate)
            for candidate in best
            if candidate.token == EOS_ID and candidate.score > -math.inf
        ]
        if is_at_limit and not finished:
            finished += [self._hypothesis(candidate) for candidate in rest if candidate.score > -math.inf]
        # NaN is the best if it is there.
        is_too_large = math.isnan(best[0].score) or best[0].score == math.inf
        if is_too_large or (is_at_limit and not finished):
            self._overflowed.append(sentence)
            return True
        return is_at_limit or len(finished) >= self._num_rows

    def _written(self, candidate: _Candidate) -> tuple[list[int], list[int]]:
        ids, copied = self._rows[int(candidate.row)]
        if candidate.copied >= 0:
            copied = [*copied, int(candidate.copied)]
        return [*ids, int(candidate.token)], copied

    def _hypothesis(self, candidate: _Candidate) -> Hypothesis:
        ids, copied = self._written(candidate)
        is_finished = ids[-1] == EOS_ID
        score = candidate.score if self._request.with_scores else math.nan
        return Hypothesis(ids[:-1] if is_finished else ids, score, is_finished, copied)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The hypotheses of each sentence of the request."""
        if self._overflowed:
            raise NotFiniteError(sorted(self._overflowed))
        return self._finished
