"""The reference engine: the searches of `mt.search` over a model of ours, or an ensemble, by torch."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import torch

from mt import distributed, processes
from mt.data.batches.batch import pad
from mt.device import OVERFLOW_REMEDY, SearchPrecision, split_on_out_of_memory
from mt.errors import OverflowedLinesError
from mt.inference.engines import EngineName, Rules, Sentence, too_large
from mt.inference.grouping import group_by_length
from mt.inference.parallel import Check, map_in_parallel, num_in_parallel
from mt.search.beam import beam_search
from mt.search.greedy import greedy_search
from mt.search.hypothesis import Hypothesis, NotFiniteError
from mt.search.request import EncoderDecoder, SearchRequest
from mt.search.sampling import sample
from mt.search.strategy import Beam, Sampling
from mt.special_tokens import EOS_ID, UNK_ID

LOG = logging.getLogger(__name__)

_BATCH_TOKENS, _BEAM_TOKENS = 8192, 16_384
"""Source positions in a batch, including padding, so that long sentences need no more memory; with a beam,
those of a sentence count once for each of its hypotheses. A batch has more if a single sentence has."""
_TIMES_ON_CUDA = 4
"""How many times as many they are on CUDA, where more sentences hardly lengthen a step."""


class TorchEngine:
    """An `mt.inference.engines.Engine` that can do everything, and the reference for the others."""

    name: EngineName = "torch"

    def __init__(
        self,
        model: EncoderDecoder[Any],
        device: torch.device,
        *,
        batch_sentences: int,
        precision: SearchPrecision = "float32",
        why: str = "",
    ) -> None:
        """Search with ``model``, which is on ``device``, at most ``batch_sentences`` at once."""
        self.model = model
        self.torch_device = device
        self.device = device.type
        self.batch_sentences = batch_sentences
        self.precision: SearchPrecision = precision
        self.why = why

    def why_not(self, rules: Rules, sentence: Sentence) -> str | None:
        """Nothing: it can do everything."""
        return None

    def search(
        self,
        sentences: Sequence[Sentence],
        rules: Rules,
        *,
        check: Callable[[], None] = lambda: None,
        after: Callable[[Sequence[int]], None] = lambda indices: None,
    ) -> list[list[Hypothesis]]:
        """Search as in `Engine`.

        Sentences of similar length are searched together; several processes share the batches, and each
        searches some of them at once.
        """
        # Several processes make the same batches, whatever their number of threads.
        at_once = 1 if processes.are_several() else num_in_parallel(self.torch_device)
        batches = self._batches(
            sentences, rules.strategy.size if isinstance(rules.strategy, Beam) else 1, at_once
        )
        found: dict[int, list[Hypothesis]] = {}

        def search_indices(indices: list[int], check: Check) -> list[list[Hypothesis]]:
            batch = [sentences[index] for index in indices]
            search = partial(self._search_batch, rules=rules, check=check)
            return list(chain.from_iterable(split_on_out_of_memory(search, batch, _halves)))

        def count(indices: list[int]) -> None:
            # By then, the other processes have about finished their batches of about the same lengths.
            size = processes.size()
            first = batches.index(indices) // size * size
            after(list(chain.from_iterable(batches[first : first + size])))

        def search_share(share: Sequence[list[int]]) -> list[list[list[Hypothesis]]]:
            return map_in_parallel(search_indices, share, at_once, check=check, after=count)

        for indices, hypotheses in zip(batches, distributed.scatter(batches, search_share), strict=True):
            found |= zip(indices, hypotheses, strict=True)
        return [found[index] for index in range(len(sentences))]

    @torch.inference_mode()
    def _search_batch(self, batch: list[Sentence], rules: Rules, check: Check) -> list[list[Hypothesis]]:
        request = replace(self._request(batch, rules), before_each_step=check)
        try:
            match rules.strategy:
                case None:
                    return [[found] for found in greedy_search(self.model, request)]
                case Beam():
                    return beam_search(self.model, request, rules.strategy)
                case Sampling():
                    numbers = [sentence.number for sentence in batch]
                    return [[found] for found in sample(self.model, request, rules.strategy, numbers)]
        except NotFiniteError as error:
            reasons = {
                batch[index].line: f"line {batch[index].line} has a sentence for which the model's logits in "
                f"{self.precision} are NaN or infinite. {OVERFLOW_REMEDY}"
                for index in error.sentences
            }
            raise OverflowedLinesError(reasons) from error

    def _request(self, batch: Sequence[Sentence], rules: Rules) -> SearchRequest:
        src_ids = pad([list(sentence.ids) for sentence in batch], last=EOS_ID).to(self.torch_device)
        constraints = rules.constraints
        if any(sentence.prefix for sentence in batch):
            constraints = replace(constraints, prefixes=[sentence.prefix for sentence in batch])
        return SearchRequest(
            src_ids,
            [sentence.limit for sentence in batch],
            rules.keep_unk,
            src_ids == UNK_ID if rules.copies_words else None,
            [sentence.prefix_copies for sentence in batch],
            constraints,
            rules.with_scores,
        )

    def _batches(self, sentences: Sequence[Sentence], beam_size: int, at_once: int) -> list[list[int]]:
        """The indices of the sentences of each batch, as in `group_by_length`."""
        most_positions = min(_BATCH_TOKENS, _BEAM_TOKENS // beam_size)
        return group_by_length(
            [len(sentence.ids) + 1 for sentence in sentences],
            most_sentences=self.batch_sentences,
            most_positions=most_positions * _TIMES_ON_CUDA if self.device == "cuda" else most_positions,
            beam_size=beam_size,
            num_in_parallel=at_once,
        )


def _halves(batch: list[Sentence]) -> tuple[list[Sentence], list[Sentence]]:
    """Split a batch that does not fit into memory, which does not change the translations."""
    if len(batch) == 1:
        raise too_large(batch[0])
    LOG.warning(
        "out of memory: a batch of %d sentences was split in two. Lower validation.batch_sentences.",
        len(batch),
    )
    middle = len(batch) // 2
    return batch[:middle], batch[middle:]
