"""Converts a checkpoint for CTranslate2, verifies it against torch, and decides on its precision; once."""

import atexit
import contextlib
import logging
import platform
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ctranslate2
import torch

from mt.checkpoint.record import MODEL
from mt.data.cache import locked
from mt.data.corpus import load_split
from mt.display import counted
from mt.errors import ExportError, MtError
from mt.files import make_folder, new_folder, remove_leftovers
from mt.inference.alignment_layer import aligning_layer
from mt.inference.engine.choice import open_engine
from mt.inference.engine.ctranslate2_engine import CTranslate2Engine
from mt.inference.engine.places import REFUSED, checksums_of, engine_places, find_engine, prune
from mt.inference.engine.quality import Difference, compare
from mt.inference.engine.specification import write_ctranslate2
from mt.inference.engine.verification import verify
from mt.inference.exported_folder import ExportPrecision, record_of, write_export_record
from mt.inference.loaded_model import LoadedModel, load_model
from mt.inference.model_translator import ModelTranslator
from mt.inference.score import score_targets
from mt.inference.text_search import TextSearch
from mt.run_directory import RunDirectory
from mt.special_tokens import SPECIAL_TOKENS

LOG = logging.getLogger(__name__)

CPU = torch.device("cpu")
_NUM_RANDOM, _RANDOM_LENGTH = 64, 30
_MAX_DIFFERENCE = 1e-4
"""The largest difference of a log-probability that rounding explains."""
_LOOKS = {250: 99, 500: 98, 1000: 95}
"""How many validation sentences decide on int8, at each look, and by which interval in percent; all but the
last are wider, because each look is another chance of a wrong decision."""
_FEWEST_VALIDATED = 100
_COPIES_ENOUGH = 0.94
"""The share that must arrive of the made-up words that do with torch, or else torch translates such lines."""
_NUM_MADE_UP = 50
_MADE_UP = "zqxjkv"
Pairs = Sequence[tuple[str, str]]


def convert(run: RunDirectory, checkpoint: str) -> Path:
    """Convert a checkpoint, unless another process has just done that; return the folder of its engine.

    It is in the run directory; if that cannot be written, in the cache, or else in a temporary folder.
    """
    loaded = load_model(run, checkpoint)
    weights = loaded.checkpoint.checksums[MODEL]
    for place in engine_places(run):
        with contextlib.suppress(OSError):
            make_folder(place)
            with locked(place):
                found = find_engine(run, weights)
                if found is None:
                    remove_leftovers(place)
                    found = _make(place / weights, run, loaded)
                    prune(place, run, found)
                return found
    place = Path(tempfile.mkdtemp(prefix="mt-engine-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return _make(place / weights, run, loaded)


def _make(folder: Path, run: RunDirectory, loaded: LoadedModel) -> Path:
    started = time.monotonic()
    LOG.info("preparing the fast engine for %s, once", loaded.checkpoint.name)
    with new_folder(folder) as partial:
        try:
            said = _Conversion(partial, run, loaded).run()
        except ExportError as error:
            LOG.warning("torch will translate with this checkpoint: %s", error)
            shutil.rmtree(partial)
            partial.mkdir()
            (partial / REFUSED).write_text(f"CTranslate2 does not translate as torch does: {error}")
            said = ""
    if said:
        LOG.info("%s (%.0f s)", said, time.monotonic() - started)
    return folder


class _Conversion:
    """The conversion of one checkpoint."""

    def __init__(self, folder: Path, run: RunDirectory, loaded: LoadedModel) -> None:
        self._folder, self._run, self._loaded = folder, run, loaded
        loaded.model.eval()
        self._pairs = _validation_pairs(loaded)
        self._alignment = _aligning_heads(loaded)
        self._facts: dict[str, Any] = {
            "ctranslate2": ctranslate2.__version__,
            "torch": torch.__version__,
            "processor": platform.processor() or platform.machine(),
        }

    def run(self) -> str:
        """Write and verify the folders; return what users are told."""
        self._write("float32")
        self._compare_scores(self._open("float32"))
        sources, references = [src for src, _ in self._pairs], [tgt for _, tgt in self._pairs]
        if sources:
            fast = self._search("float32")
            agreements = verify(
                self._loaded,
                lambda texts, strategy: fast.translate(texts, strategy=strategy),
                sources,
                references,
            )
            self._facts["agreements"] = [asdict(each) for each in agreements]
        copies_well = self._copies_well()
        said = "verified against torch"
        if len(sources) >= _FEWEST_VALIDATED:
            difference = self._int8_difference(sources, references)
            self._facts["int8"] = asdict(difference)
            said = f"{said}; {_described(difference)}"
            if difference.is_good:
                self._write("int8", copies_well=copies_well)
        self._write_record("float32", copies_well=copies_well)
        return said

    def _write(self, precision: ExportPrecision, *, copies_well: bool = True) -> None:
        folder = self._folder / precision
        folder.mkdir()
        write_ctranslate2(self._loaded, folder, precision, self._alignment)
        self._write_record(precision, copies_well=copies_well)

    def _write_record(self, precision: ExportPrecision, *, copies_well: bool) -> None:
        record = record_of(self._loaded, "ctranslate2", self._run.name, precision)
        record = replace(
            record,
            copies_well=copies_well,
            made_from=checksums_of(self._run),
            verified=self._facts,
        )
        write_export_record(self._folder / precision, record)

    def _open(self, precision: str, compute_type: str = "auto") -> CTranslate2Engine:
        engine, _ = open_engine(self._folder / precision, "cpu", compute_type, why="it is verified")  # type: ignore[arg-type]
        return engine

    def _search(self, precision: str, compute_type: str = "auto", *, copies: bool = False) -> TextSearch:
        loaded = self._loaded
        return TextSearch(
            self._open(precision, compute_type),
            loaded.src_tokenizer,
            loaded.tgt_tokenizer,
            max_length=loaded.config.data.max_length,
            target_ratio=loaded.target_ratio,
            copies_words=copies,
        )

    @torch.inference_mode()
    def _compare_scores(self, engine: CTranslate2Engine) -> None:
        """Compare the log-probabilities of random ids, which needs no corpus."""
        loaded, drawn = self._loaded, random.Random(1)
        length = max(1, min(_RANDOM_LENGTH, loaded.config.data.max_length - 1))
        sources, targets = (
            [
                [drawn.randrange(len(SPECIAL_TOKENS), size) for _ in range(drawn.randint(1, length))]
                for _ in range(_NUM_RANDOM)
            ]
            for size in (loaded.src_tokenizer.size, loaded.tgt_tokenizer.size)
        )
        ours = score_targets(
            loaded.model,
            sources,
            targets,
            device=CPU,
            batch_tokens=4096,
            vocab_size=loaded.tgt_tokenizer.size,
            first_line=1,
        )
        worst = max(
            abs(one - other)
            for our_scores, theirs in zip(ours, engine.score(sources, targets), strict=True)
            for one, other in zip(our_scores, theirs.result().log_probs, strict=True)
        )
        self._facts["largest difference of a log-probability"] = worst
        if not worst <= _MAX_DIFFERENCE:
            raise ExportError(f"log-probabilities of random sentences differ by {worst:.2g}.")

    def _int8_difference(self, sources: list[str], references: list[str]) -> Difference:
        copies = self._loaded.config.copies_words
        searches = [self._search("float32", each, copies=copies) for each in ("float32", "int8")]
        exact: list[str] = []
        lower: list[str] = []
        for number, percent in _LOOKS.items():
            is_last = number >= len(sources)
            for search, translated in zip(searches, (exact, lower), strict=True):
                translated += search.translate(sources[len(translated) : number])
            difference = compare(exact, lower, references[:number], percent=95 if is_last else percent)
            if difference.is_clear or is_last:
                break
        return difference

    def _copies_well(self) -> bool:
        """Whether nearly all of the words that it cannot know arrive in its translations."""
        if not self._loaded.config.copies_words or not self._pairs:
            return True
        sentences = []
        for number, (source, _) in enumerate(self._pairs[:_NUM_MADE_UP]):
            words = source.split()
            # Words have their ids by frequency: the rarest is no article and no preposition.
            ids = [max(each, default=0) for each in self._loaded.src_tokenizer.encode_batch(words)]
            rarest = max(range(len(words)), key=lambda index: (words[index].isalpha(), ids[index]))
            words[rarest] = f"{_MADE_UP}{number}"
            sentences.append(" ".join(words))
        searches = ModelTranslator.from_loaded(self._loaded, device=CPU), self._search("float32", copies=True)
        by_torch, arrived = (
            sum(f"{_MADE_UP}{number}" in text for number, text in enumerate(search.translate(sentences)))
            for search in searches
        )
        self._facts["made-up words that arrive"] = [arrived, len(sentences)]
        return arrived >= _COPIES_ENOUGH * by_torch


def _validation_pairs(loaded: LoadedModel) -> Pairs:
    """The first pairs of the validation split that have text on both sides; none if it cannot be read."""
    config = loaded.config
    try:
        # With the cleaning of the run, or a cached corpus would not be found.
        rows = load_split(config.data, "validation", config.cleaning)
    except MtError as error:
        LOG.info("the fast engine is verified without validation sentences: %s", error)
        return []
    pairs = ((row["src"], row["tgt"]) for row in rows)
    found = []
    for src, tgt in pairs:
        if src.strip() and tgt.strip():
            found.append((src, tgt))
        if len(found) == max(_LOOKS):
            break
    return found


def _aligning_heads(loaded: LoadedModel) -> tuple[int, int]:
    """The decoder layer whose attention aligns words, and how many of its heads are averaged for that."""
    if loaded.config.training.guided_alignment > 0:
        return -1, 1
    layer = aligning_layer(ModelTranslator.from_loaded(loaded, device=CPU))
    return -1 if layer is None else layer.index, loaded.config.model.num_heads


def _described(difference: Difference) -> str:
    share = 100 * difference.num_differing / difference.num_sentences
    change = difference.lower_bleu - difference.bleu
    verdict = "int8 is used" if difference.is_good else "float32 is used"
    return (
        f"on a CPU {verdict}: of {counted(difference.num_sentences, 'validation sentence')}, {share:.1f} % "
        f"differ in int8, and BLEU changes by {change:+.2f} "
        f"[{difference.interval[0]:+.2f}, {difference.interval[1]:+.2f}]"
    )
