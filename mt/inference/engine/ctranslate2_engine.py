"""The engine of CTranslate2: it searches, by our rules, with a converted model of a run or exported folder.

It needs no torch: only ids go in, and hypotheses come out.
"""

import contextlib
import ctypes
import importlib.util
import logging
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import ctranslate2

from mt import system
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.errors import CheckpointError, EngineError
from mt.files import read_text, remove_folder_atomically
from mt.inference.engines import After, Check, Rules, Sentence, batches_by_length, in_halves
from mt.inference.exported_folder import REFUSED, open_exported, weights_of
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.search.hypothesis import Hypothesis
from mt.search.strategy import Beam
from mt.special_tokens import BOS, EOS, EOS_ID, PAD, UNK_ID

if TYPE_CHECKING:
    import torch

    from mt.device import PrecisionName, SearchPrecision
    from mt.inference.model_translator import ModelTranslator

LOG = logging.getLogger(__name__)

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


_Candidate = tuple[Hypothesis, Sequence[Sequence[float]]]
"""A hypothesis, and the attention of the head that aligns, if that was returned."""


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

    def search(
        self, sentences: Sequence[Sentence], rules: Rules, check: Check, after: After
    ) -> list[list[Hypothesis]]:
        """Search as `TorchEngine` does: batches of like length at once, a worker for each thread."""
        # Few sentences are divided among the workers.
        share = math.ceil(sum(len(sentence.ids) + 1 for sentence in sentences) / self._num_workers)
        most_tokens = max(_FEWEST_TOKENS, min(share, _BATCH_TOKENS[self.device] // rules.beam.size))
        batches = batches_by_length(sentences, most_tokens)
        some = ([sentences[index] for index in batch] for batch in batches)
        found: dict[int, list[Hypothesis]] = {}
        # Twice as many threads, so that no worker waits while results are read.
        pool = ThreadPoolExecutor(2 * self._num_workers)
        try:
            for batch, hypotheses in zip(batches, pool.map(self._search, some, repeat(rules)), strict=True):
                check()
                found |= zip(batch, hypotheses, strict=True)
                after(batch)
        finally:
            # After Ctrl-C, only what was begun is translated.
            pool.shutdown(cancel_futures=True)
        return [found[index] for index in range(len(sentences))]

    def _search(self, sentences: Sequence[Sentence], rules: Rules) -> list[list[Hypothesis]]:
        """Search for some sentences, and once more for each whose translation breaks a rule."""
        wanted, found = [*sentences], dict[int, list[Hypothesis]]()
        pending: dict[_CallOptions, list[int]] = defaultdict(list)
        for index, sentence in enumerate(wanted):
            copies = rules.copies_words and not rules.keep_unk and UNK_ID in sentence.ids
            pending[_CallOptions(copies, copies or rules.keep_unk)].append(index)
        while pending:
            options, indices = pending.popitem()
            translate = partial(self._translate, options, rules)
            results = in_halves(translate, [wanted[index] for index in indices])
            for index, candidates in zip(indices, results, strict=True):
                # A call has one limit for all its sentences, which may be higher than that of this one.
                limit = wanted[index].limit
                is_cut = any(not each.finished or len(each.ids) >= limit for each, _ in candidates)
                if is_cut and options.limit is None:
                    pending[options._replace(limit=limit)].append(index)
                    continue
                found[index], again = _by_rule(candidates, wanted[index], rules.beam)
                if again is not None:
                    wanted[index] = again
                    pending[_CallOptions(copies=True, writes_unk=False)].append(index)
        return [found[index] for index in range(len(sentences))]

    def _translate(
        self, options: _CallOptions, rules: Rules, sentences: Sequence[Sentence]
    ) -> list[list[_Candidate]]:
        """The hypotheses that CTranslate2 finds for each sentence, the best first."""
        beam, prefixes = rules.beam, _named(self._tgt_names, (sentence.prefix for sentence in sentences))
        # Scores are divided by this power of the length, to choose N if more hypotheses have finished. Around
        # 20, (5 + length) grows as length ** 0.8. With 0, the search would end with its first hypothesis.
        penalty = max(beam.length_penalty * (0.8 if beam.length_normalization == "gnmt" else 1.0), 1e-6)
        # With patience 2, a search continues to its limit, where up to N unfinished hypotheses are added.
        patience = 2 if options.limit and beam.size > 1 else 1
        results: list[Any] = self._translator.translate_batch(
            _named(self._src_names, (sentence.ids for sentence in sentences)),
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=beam.size,
            patience=patience,
            num_hypotheses=beam.size * patience,
            length_penalty=penalty,
            disable_unk=not options.writes_unk,
            suppress_sequences=[[PAD], [BOS]],
            return_end_token=True,
            max_input_length=0,
            max_decoding_length=options.limit or max(sentence.limit for sentence in sentences),
            min_decoding_length=rules.constraints.min_length,
            no_repeat_ngram_size=rules.constraints.no_repeat_ngram,
            return_scores=rules.with_scores or beam.size > 1,
            return_attention=options.copies,
        )
        # A search counts its prefix, which the score of a translation has before EOS, as certain.
        needs_scores = any(prefixes) and results[0].scores
        scored = self.score(sentences) if needs_scores else [[0.0]] * len(sentences)
        found = []
        for result, log_probs in zip(results, scored, strict=True):
            prefix_score, scores = math.fsum(log_probs[:-1]), result.scores or repeat(math.nan)
            candidates: list[_Candidate] = []
            attention = result.attention or repeat(())
            for tokens, score, weights in zip(result.hypotheses, scores, attention, strict=False):
                is_finished = tokens[-1:] == [EOS]
                ids = [self._tgt_ids[token] for token in tokens[: len(tokens) - is_finished]]
                total = score * max(1, len(tokens)) ** penalty + prefix_score
                candidates.append((Hypothesis(ids, total, is_finished), weights))
            found.append(candidates)
        return found

    def score(self, sentences: Sequence[Sentence]) -> list[list[float]]:
        """The log-probabilities of the tokens of each prefix, and of EOS after it."""
        results = self._translator.score_batch(
            _named(self._src_names, (sentence.ids for sentence in sentences)),
            _named(self._tgt_names, (sentence.prefix for sentence in sentences)),
            max_input_length=0,
            max_batch_size=_BATCH_TOKENS[self.device],
            batch_type="tokens",
        )
        return [result.log_probs for result in results]

    def attention(
        self, source: Sequence[int], targets: Sequence[Sequence[int]]
    ) -> list[Sequence[Sequence[float]]]:
        """How much each token of each target attends to each token of the source, by the head that aligns."""
        results = self._translator.translate_batch(
            _named(self._src_names, [source] * len(targets)),
            target_prefix=_named(self._tgt_names, targets),
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(map(len, targets)) + 1,
            return_attention=True,
        )
        return [result.attention[0] for result in results]


def load_converted(run: RunDirectory, checkpoint: str, **options: Any) -> Translator:
    """Load the engine of a checkpoint with the options of `load_exported`; it may be converted first."""
    # A checkpoint that cannot be read is explained when it is converted.
    folder = run.engine_dir / (weights_of(run, checkpoint) or "none")
    if folder.exists():
        try:
            return load_exported(folder, **options)
        except CheckpointError as error:
            LOG.warning("the fast engine is made again: %s", error)
            remove_folder_atomically(folder)
    if run.lock_owner() is not None:
        raise EngineError("the run is being trained, and its checkpoints change")
    if importlib.util.find_spec("torch") is None:
        raise CheckpointError(
            f"{checkpoint} of {run.path} was not yet converted for translating without torch. Translate "
            "a sentence with it once where torch is installed, and copy the run again."
        )
    # Imported by its name, because it needs torch.
    return load_exported(import_module("mt.inference.engine.convert").convert(run, checkpoint), **options)


def load_exported(
    folder: Path,
    *,
    device: "str | torch.device" = "cpu",
    precision: "PrecisionName" = "auto",
    dictionary: Mapping[str, str] | None = None,
    load_model: "Callable[[], ModelTranslator] | None" = None,
) -> Translator:
    """Load a model that was converted for CTranslate2; the folder may have one for each precision."""
    kind = str(device).partition(":")[0]
    if kind == "auto":
        kind = "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    if kind == "cuda":
        _load_cublas()
    # A note that is damaged is followed by an error for the record, which such a folder does not have.
    with contextlib.suppress(OSError):
        if why := read_text(folder / REFUSED, max_bytes=100_000).strip():
            raise EngineError(why)
    if (folder / "float32").is_dir():
        is_int8 = kind == "cpu" and precision in ("auto", "int8") and (folder / "int8").is_dir()
        folder /= "int8" if is_int8 and cpu_has_int8() else "float32"
    record, *tokenizers = open_exported(folder)
    try:
        engine = CTranslate2Engine(folder, *tokenizers, device=kind, precision=precision)
        if kind == "cuda":
            # The first product loads the libraries of CUDA 12, which are not those of torch.
            engine.attention([], [[]])
    # These are its only errors; that the files are sound was verified.
    except (RuntimeError, ValueError, MemoryError) as error:
        remedy = " Use --device cpu." if kind == "cuda" else ""
        raise EngineError(f"CTranslate2 cannot compute on {kind}: {error}.{remedy}") from error
    return Translator(engine, record, *tokenizers, dictionary=dictionary, load_model=load_model)


def cpu_has_int8() -> bool:
    """Whether this build of CTranslate2 multiplies in 8 bits on this processor."""
    return "int8" in ctranslate2.get_supported_compute_types("cpu")


def _named(names: Sequence[str], rows: Iterable[Sequence[int]]) -> list[list[str]]:
    """The tokens of each row of ids."""
    return [[names[number] for number in row] for row in rows]


def _by_rule(
    candidates: Sequence[_Candidate], sentence: Sentence, beam: Beam
) -> tuple[list[Hypothesis], Sentence | None]:
    """The hypotheses that copy by the rule, the best first; or what to search for if the first does not."""
    kept: list[Hypothesis] = []
    for hypothesis, attention in candidates:
        copied, again = copies_of(hypothesis, sentence, attention)
        if again is None or len(again.prefix) >= sentence.limit:
            kept.append(replace(hypothesis, copied=copied))
        elif not kept:
            return [], again
    kept = [each for each in kept if each.finished] or kept
    kept.sort(key=beam.normalised_score, reverse=True)
    return kept[: beam.size], None


def copies_of(
    hypothesis: Hypothesis, sentence: Sentence, attention: Sequence[Sequence[float]]
) -> tuple[list[int], Sentence | None]:
    """The source position that each UNK copies; if that breaks the rule of `mt.search.rules`, up to where.

    A word is to be copied where the aligning head attends most to it, unless it has been copied already;
    elsewhere UNK is not to be written. If it is otherwise, the sentence is also returned with the prefix with
    which to search again, without UNK.
    """
    ids, again = list(hypothesis.ids), None
    if hypothesis.finished:
        ids.append(EOS_ID)
    positions = [*sentence.prefix_copies]
    steps = enumerate(zip(ids, attention, strict=False))
    for step, (token, weights) in islice(steps, len(positions), None):
        others = (other for other in range(len(sentence.ids)) if other not in positions)
        position = max(others, key=weights.__getitem__, default=-1)
        is_due = position >= 0 and sentence.ids[position] == UNK_ID
        positions.append(position if is_due else -1)
        if is_due != (token == UNK_ID):
            ids, positions = ids[:step], positions[: step + is_due]
            if is_due:
                ids.append(UNK_ID)
            again = replace(sentence, prefix=ids, prefix_copies=positions)
            break
    return [position for position, token in zip(positions, ids, strict=False) if token == UNK_ID], again


def _num_threads() -> int:
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) else system.usable_cores()


def _load_cublas() -> None:
    """Load cuBLAS of CUDA 12 from its wheel, if that is installed: CTranslate2 opens it by its name."""
    with contextlib.suppress(ModuleNotFoundError, OSError):
        [folder] = import_module("nvidia.cublas.lib").__path__
        for name in ("libcublasLt.so.12", "libcublas.so.12"):
            ctypes.CDLL(f"{folder}/{name}", mode=ctypes.RTLD_GLOBAL)
