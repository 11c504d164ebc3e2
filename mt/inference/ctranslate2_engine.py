"""The engine of an exported model: CTranslate2 searches, by our rules as far as it supports them."""

import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import ctranslate2
import torch

from mt import processes
from mt.device import is_amd, is_out_of_memory
from mt.errors import CheckpointError, ConfigError, DeviceError, Remedy
from mt.inference.exported_folder import ExportedFolder, ExportPrecision
from mt.inference.text_search import TextSearch
from mt.search.hypothesis import Hypothesis, normalised_score
from mt.search.request import NO_CONSTRAINTS, SearchRequest
from mt.search.strategy import Beam, Sampling, Strategy
from mt.special_tokens import BOS, EOS, EOS_ID, PAD, PAD_ID

LOG = logging.getLogger(__name__)
Found = list[Hypothesis]

_PRECISIONS: dict[str, ExportPrecision] = {"float32": "float32", "bfloat16": "bf16"}
"""The types that CTranslate2 computes in; types that are not listed have int8 weights."""
_USUAL_LENGTH = 20
"""Tokens in a typical sentence. CTranslate2 has one length penalty for all sentences of a call, and it must
not depend on the sentences."""


class CTranslate2Engine:
    """An `mt.inference.engines.Engine` over a folder that CTranslate2 loads.

    As in our search, PAD, BOS and UNK are never written, a translation may be empty, and each sentence has
    its own limit, at which finished hypotheses are preferred. Two differences remain: forbidden tokens are
    excluded before the softmax, and if more than N hypotheses have finished, the best N are kept, not the
    first N. A search cannot be stopped before its batch is translated.
    """

    def __init__(
        self, folder: Path, src_names: Sequence[str], tgt_names: Sequence[str], *, device: str = "cpu"
    ) -> None:
        """Load the model.

        Args:
            folder: The exported folder.
            src_names: The tokens of the source vocabulary, by id.
            tgt_names: The tokens of the target vocabulary, by id.
            device: ``cpu``, ``cuda``, or ``auto`` for a GPU on which CTranslate2 can compute, else the CPU.
        """
        if device not in ("auto", "cpu", "cuda"):
            raise DeviceError(f"CTranslate2 computes on cpu or cuda, not on {device}.", Remedy.COMPUTE_ON_CPU)
        has_cuda = device != "cpu" and ctranslate2.get_cuda_device_count() > 0
        if device == "cuda" and not has_cuda:
            raise DeviceError("CTranslate2 finds no CUDA device here.", Remedy.COMPUTE_ON_CPU)
        self._translator = _load(folder, "cuda" if has_cuda else "cpu")
        if has_cuda and (reason := _why_unusable(self._translator)):
            if device == "cuda":
                raise DeviceError(f"CTranslate2 cannot compute on the GPU: {reason}.", Remedy.COMPUTE_ON_CPU)
            LOG.warning("CTranslate2 cannot compute on the GPU, so it computes on the CPU: %s.", reason)
            self._translator = _load(folder, "cpu")
        self.num_at_once = 1
        if self._translator.device == "cpu" and self._translator.compute_type.startswith("int8") and is_amd():
            # Two threads of one product wait for each other there: a sentence takes them nine times as long
            # as one thread. So each has sentences of its own.
            self.num_at_once = torch.get_num_threads()
            self._translator = _load(folder, "cpu", workers=self.num_at_once)
        # If the processor has no instructions for bf16, CTranslate2 computes such a model in float32.
        self.precision = _PRECISIONS.get(self._translator.compute_type, "int8")
        self.device = torch.device("cpu")
        self._src_names = list(src_names)
        self._tgt_ids = {name: number for number, name in enumerate(tgt_names)}

    def search(
        self, request: SearchRequest, strategy: Strategy, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        """Search as in `Engine`; ``numbers`` are for sampling, which this engine refuses."""
        refuse_what_it_cannot_do(request, strategy)
        beam = strategy if isinstance(strategy, Beam) else Beam(1)
        sources = [
            # Without EOS, which CTranslate2 adds.
            [self._src_names[token] for token in row if token not in (PAD_ID, EOS_ID)]
            for row in request.src_ids.tolist()
        ]
        penalty = _length_penalty(beam)
        translate = partial(self._translate, size=beam.size, penalty=penalty, keep_unk=request.keep_unk)
        found = translate(sources, max(request.limits))
        # A call has one limit for all its sentences: those that exceeded or reached their own search again.
        again: dict[int, list[int]] = {}
        for place, (hypotheses, limit) in enumerate(zip(found, request.limits, strict=True)):
            if any(not each.finished or len(each.ids) >= limit for each in hypotheses):
                again.setdefault(limit, []).append(place)
        for limit, places in again.items():
            cut = translate([sources[place] for place in places], limit, at_limit=True)
            for place, hypotheses in zip(places, cut, strict=True):
                finished = [each for each in hypotheses if each.finished]
                found[place] = finished or hypotheses
        return [
            sorted(
                hypotheses,
                key=lambda each: -normalised_score(each, beam.length_penalty, beam.length_normalization),
            )[: beam.size]
            for hypotheses in found
        ]

    def _translate(
        self,
        sources: list[list[str]],
        limit: int,
        *,
        size: int,
        penalty: float,
        keep_unk: bool,
        at_limit: bool = False,
    ) -> list[Found]:
        """Translate with one limit of tokens for all; ``at_limit`` returns all hypotheses."""
        # With patience 2, a search continues to its limit, where up to N unfinished hypotheses are added.
        patience = 2 if at_limit and size > 1 else 1
        try:
            results = self._translator.translate_batch(
                sources,
                beam_size=size,
                patience=patience,
                num_hypotheses=size * patience,
                length_penalty=penalty,
                disable_unk=not keep_unk,
                suppress_sequences=[[PAD], [BOS]],
                return_end_token=True,
                max_input_length=0,
                max_decoding_length=limit,
                min_decoding_length=0,
                return_scores=True,
            )
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise CheckpointError(f"CTranslate2 cannot translate with this folder: {error}.") from error
        return [
            [
                self._hypothesis(tokens, score * max(1, len(tokens)) ** penalty)
                for tokens, score in zip(each.hypotheses, each.scores, strict=True)
            ]
            for each in results
        ]

    def _hypothesis(self, tokens: list[str], score: float) -> Hypothesis:
        finished = tokens[-1:] == [EOS]
        ids = [self._tgt_ids[token] for token in (tokens[:-1] if finished else tokens)]
        return Hypothesis(ids, score, finished)


def _load(folder: Path, device: str, workers: int | None = None) -> ctranslate2.Translator:
    """Load a model for one worker with all threads, or for several with a single thread each."""
    try:
        return ctranslate2.Translator(
            # As bytes, because it does not accept text that is not UTF-8.
            os.fsencode(folder),
            device=device,
            device_index=processes.local_rank() if device == "cuda" else 0,
            inter_threads=workers or 1,
            intra_threads=1 if workers else torch.get_num_threads(),
        )
    # These are its only errors for everything that may be wrong with the files.
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(f"CTranslate2 cannot load {folder}: {error}.") from error


def _why_unusable(translator: ctranslate2.Translator) -> str | None:
    """Why a model that was loaded cannot compute; None if it can.

    The libraries of CUDA, which are those of version 12 and not of torch, are loaded by the first product.
    """
    try:
        translator.translate_batch([[EOS]], beam_size=1, max_decoding_length=1)
    except RuntimeError as error:
        return str(error)
    return None


def _length_penalty(beam: Beam) -> float:
    """The length exponent with which CTranslate2 ranks as similarly as possible to ``beam``.

    It decides what is dropped if more than N hypotheses have finished; we rank the others ourselves.
    """
    exponent = beam.length_penalty
    if beam.length_normalization == "gnmt":
        # Around this length, (5 + length) grows as this power of the length.
        exponent *= _USUAL_LENGTH / (5 + _USUAL_LENGTH)
    # With 0, the search would end with its first hypothesis.
    return max(exponent, 1e-6)


def refuse_what_it_cannot_do(request: SearchRequest, strategy: Strategy) -> None:
    """Check that CTranslate2 supports what is requested, with the same meaning as in our search."""
    if isinstance(strategy, Sampling):
        raise ConfigError(
            "the ctranslate2 engine does not sample: leave sampling out, or give the run itself."
        )
    if request.constraints != NO_CONSTRAINTS:
        raise ConfigError(
            "the ctranslate2 engine does not support prefixes, a minimum length or no-repeat n-grams: "
            "leave them out, or give the run itself."
        )


def load_exported(path: Path, *, device: str = "cpu") -> TextSearch:
    """Load an exported folder of CTranslate2 to translate with."""
    folder = ExportedFolder.open(path)
    record = folder.record
    if record.target != "ctranslate2":
        raise CheckpointError(
            f"{path} was exported for {record.target}: load it there, as its README.md shows, or export the "
            "run to ctranslate2."
        )
    src_tokenizer, tgt_tokenizer = folder.tokenizers()
    names = (tokenizer.tokens(range(tokenizer.size)) for tokenizer in (src_tokenizer, tgt_tokenizer))
    engine = CTranslate2Engine(path, *names, device=device)
    return TextSearch(
        engine,
        src_tokenizer,
        tgt_tokenizer,
        max_length=record.max_length,
        batch_sentences=record.batch_sentences,
        target_ratio=record.target_ratio,
        precision=engine.precision,
    )
