"""The engine of CTranslate2: ids go in, hypotheses by our rules come out, without torch."""

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import ctranslate2

from mt import system
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import EngineError
from mt.inference.engine.copies import check_rules
from mt.inference.engines import (
    Attention,
    CheckStop,
    NBest,
    OnDone,
    Rules,
    Sentence,
    Sentences,
    in_batches,
    in_halves,
)
from mt.search.hypothesis import Hypothesis
from mt.special_tokens import BOS, EOS, PAD, UNK_ID

if TYPE_CHECKING:
    from mt.device import PrecisionName, SearchPrecision

_COMPUTE_TYPES = {
    "cpu": {"auto": "default", "float32": "float32", "int8": "int8"},
    "cuda": {"auto": "float16", "fp16": "float16", "bf16": "bfloat16", "float32": "float32"},
}
"""CTranslate2's names of our precisions."""
# And ours of what it computes in; all that are not listed have weights of 8 bits.
_PRECISIONS: "dict[str, SearchPrecision]" = {"float32": "float32", "float16": "fp16", "bfloat16": "bf16"}
_BATCH_TOKENS, _FEWEST_TOKENS = {"cpu": 2048, "cuda": 16_384}, 64
"""Source tokens in a batch, with padding; with a beam, those of a sentence count once for each hypothesis."""
_SERVED_AT_ONCE = 32
"""Sentences for each worker that the service translates at once."""


class _CallOptions(NamedTuple):
    """How sentences are searched that share a call."""

    copies: bool
    """Whether the attention is returned, from which it is read what is copied."""
    writes_unk: bool
    limit: int | None = None
    """The limit of each sentence, if that was reached before; None for a first search, up to the highest."""


class CTranslate2Engine:
    """Searches, as `TorchEngine` does, with a model in a folder that CTranslate2 loads.

    As in our search, PAD and BOS are never written, UNK only as a copy, a translation may be empty, and each
    sentence has its own limit, at which finished hypotheses are preferred.
    """

    name: Literal["ctranslate2"] = "ctranslate2"

    def __init__(
        self,
        folder: Path,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        *,
        device: str = "cpu",
        precision: "PrecisionName" = "auto",
    ) -> None:
        """Load the model in ``folder``, which has the vocabularies of these tokenizers."""
        if precision not in _COMPUTE_TYPES.get(device, ()):
            raise EngineError(f"CTranslate2 does not compute in {precision} on {device}. Use --device cpu.")
        self.device = device
        self._num_workers = 1 if device == "cuda" else _num_threads()
        self.batch_sentences = _SERVED_AT_ONCE * self._num_workers
        self._translator = ctranslate2.Translator(
            # As bytes, because it does not accept text that is not UTF-8.
            os.fsencode(folder),
            inter_threads=self._num_workers,
            intra_threads=1,
            device=device,
            compute_type=_COMPUTE_TYPES[device][precision],
        )
        self.precision: SearchPrecision = _PRECISIONS.get(self._translator.compute_type, "int8")
        self._src_names, self._tgt_names = (
            tokenizer.tokens(range(tokenizer.size)) for tokenizer in (src_tokenizer, tgt_tokenizer)
        )
        self._tgt_ids = {name: number for number, name in enumerate(self._tgt_names)}

    def search(self, sentences: Sentences, rules: Rules, check_stop: CheckStop, on_done: OnDone) -> NBest:
        """Search as `TorchEngine` does: batches of like length at once, a worker for each thread."""
        # Few sentences are divided among the workers.
        share = math.ceil(sum(len(sentence.ids) + 1 for sentence in sentences) / self._num_workers)
        most_tokens = max(_FEWEST_TOKENS, min(share, _BATCH_TOKENS[self.device] // rules.beam.size))

        def on_batch(indices: Sequence[int]) -> None:
            check_stop()
            on_done(indices)

        # Twice as many threads, so that no worker waits while results are read.
        pool = ThreadPoolExecutor(2 * self._num_workers)
        try:
            return in_batches(partial(self._search, rules), sentences, most_tokens, on_batch, pool.map)
        finally:
            # After Ctrl-C, only what was begun is translated.
            pool.shutdown(cancel_futures=True)

    def _search(self, rules: Rules, sentences: Sentences) -> NBest:
        """Search for some sentences, and once more for each whose translation breaks a rule."""
        pending: dict[_CallOptions, list[tuple[int, Sentence]]] = defaultdict(list)
        for index, sentence in enumerate(sentences):
            copies = rules.copies_words and not rules.keep_unk and UNK_ID in sentence.ids
            pending[_CallOptions(copies, copies or rules.keep_unk)].append((index, sentence))
        by_index: dict[int, list[Hypothesis]] = {}
        while pending:
            options, work = pending.popitem()
            translate = partial(self._translate, options, rules)
            results = in_halves(translate, [sentence for _, sentence in work])
            for (index, sentence), hypotheses in zip(work, results, strict=True):
                # A call has one limit for all its sentences, which may be higher than that of this one.
                if options.limit is None and _reach(hypotheses, sentence.limit):
                    pending[options._replace(limit=sentence.limit)].append((index, sentence))
                    continue
                checked = check_rules(hypotheses, sentence, rules.beam, copies=options.copies)
                if isinstance(checked, Sentence):
                    pending[_CallOptions(copies=True, writes_unk=False)].append((index, checked))
                else:
                    by_index[index] = checked
        return [by_index[index] for index in range(len(sentences))]

    def _translate(self, options: _CallOptions, rules: Rules, sentences: Sentences) -> NBest:
        """The hypotheses that CTranslate2 finds for each sentence, the best first."""
        beam = rules.beam
        prefixes = _named(self._tgt_names, (sentence.prefix for sentence in sentences))
        # Scores are divided by this power of the length, to choose N if more hypotheses have finished. Around
        # 20, (5 + length) grows as length ** 0.8. With 0, the search would end with its first hypothesis.
        penalty = max(beam.length_penalty * (0.8 if beam.length_normalization == "gnmt" else 1.0), 1e-6)
        # With patience 2, a search continues to its limit, where up to N unfinished hypotheses are added.
        patience = 2 if options.limit and beam.size > 1 else 1
        results = self._translator.translate_batch(
            _named(self._src_names, (sentence.ids for sentence in sentences)),
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=beam.size,
            patience=patience,
            num_hypotheses=beam.size * patience,
            length_penalty=penalty,
            disable_unk=not options.writes_unk,
            suppress_sequences=[[PAD], [BOS], *([self._tgt_names[token]] for token in rules.forbidden)],
            return_end_token=True,
            max_input_length=0,
            max_decoding_length=options.limit or max(sentence.limit for sentence in sentences),
            min_decoding_length=rules.constraints.min_length,
            no_repeat_ngram_size=rules.constraints.no_repeat_ngram,
            return_scores=rules.with_scores or beam.size > 1,
            return_attention=options.copies or rules.with_attention,
        )
        prefix_scores = [0.0] * len(sentences)
        if any(prefixes) and results[0].scores:
            # A search counts its prefix, which the score of a translation has before EOS, as certain.
            prefix_scores = [math.fsum(log_probs[:-1]) for log_probs in self.score(sentences)]
        pairs = zip(results, prefix_scores, strict=True)
        return [self._hypotheses(result, penalty, prefix_score) for result, prefix_score in pairs]

    def _hypotheses(self, result: Any, penalty: float, prefix_score: float) -> list[Hypothesis]:
        """The hypotheses of a result, whose scores were divided by a power of their lengths."""
        count = len(result.hypotheses)
        scores = result.scores or [math.nan] * count
        attention = result.attention or [()] * count
        hypotheses: list[Hypothesis] = []
        for tokens, score, weights in zip(result.hypotheses, scores, attention, strict=True):
            is_finished = tokens[-1:] == [EOS]
            ids = [self._tgt_ids[token] for token in tokens[: len(tokens) - is_finished]]
            total = score * max(1, len(tokens)) ** penalty + prefix_score
            hypotheses.append(Hypothesis(ids, total, is_finished, attention=weights))
        return hypotheses

    def score(self, sentences: Sentences) -> list[list[float]]:
        """The log-probabilities of the tokens of each prefix, and of EOS after it."""
        results = self._translator.score_batch(
            _named(self._src_names, (sentence.ids for sentence in sentences)),
            _named(self._tgt_names, (sentence.prefix for sentence in sentences)),
            max_input_length=0,
            max_batch_size=_BATCH_TOKENS[self.device],
            batch_type="tokens",
        )
        return [result.log_probs for result in results]

    def attention(self, sentences: Sentences) -> list[Attention]:
        """How much each token of each prefix attends to each of the sentence, by the head that aligns."""
        most_tokens = _BATCH_TOKENS[self.device] // 2
        with ThreadPoolExecutor(self._num_workers) as pool:
            return in_batches(self._attention, sentences, most_tokens, map_batches=pool.map)

    def _attention(self, sentences: Sentences) -> list[Attention]:
        results = self._translator.translate_batch(
            _named(self._src_names, (sentence.ids for sentence in sentences)),
            target_prefix=_named(self._tgt_names, (sentence.prefix for sentence in sentences)),
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(len(sentence.prefix) for sentence in sentences) + 1,
            return_attention=True,
        )
        return [result.attention[0] for result in results]


def cpu_has_int8() -> bool:
    """Whether this build of CTranslate2 multiplies in 8 bits on this processor."""
    return "int8" in ctranslate2.get_supported_compute_types("cpu")


def _named(names: Sequence[str], rows: Iterable[Sequence[int]]) -> list[list[str]]:
    """The tokens of each row of ids."""
    return [[names[number] for number in row] for row in rows]


def _reach(hypotheses: Sequence[Hypothesis], limit: int) -> bool:
    """Whether one of the hypotheses ends because of the limit of its sentence, or would have."""
    return any(not hypothesis.finished or len(hypothesis.ids) >= limit for hypothesis in hypotheses)


def _num_threads() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) else system.usable_cores()
