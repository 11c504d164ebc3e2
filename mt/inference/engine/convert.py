"""Converts a checkpoint for CTranslate2, verifies it against torch, and decides on its precision; once."""

import logging
import platform
import random
import shutil
from dataclasses import asdict, replace
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import ctranslate2
import torch

from mt.checkpoint.record import MODEL
from mt.config.config import Config
from mt.data.cache import locked
from mt.data.corpus import load_split
from mt.errors import ExportError, MtError
from mt.files import make_folder, new_folder, remove_leftovers
from mt.inference.engine.ctranslate2_engine import CTranslate2Engine
from mt.inference.engine.specification import write_ctranslate2
from mt.inference.engine.verification import bleu, translator_of, verify
from mt.inference.engines import Sentence
from mt.inference.exported_folder import (
    REFUSED,
    ExportPrecision,
    checksums_of,
    find_engine,
    record_of,
    remove_stale,
    write_export_record,
)
from mt.inference.loaded_model import LoadedModel, load_model
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.special_tokens import SPECIAL_TOKENS

LOG = logging.getLogger(__name__)

CPU = torch.device("cpu")
_NUM_RANDOM, _RANDOM_LENGTH = 64, 30
_MAX_DIFFERENCE = 1e-4
"""The largest difference of a log-probability that rounding explains."""
_FEWEST_VALIDATED, _MOST_VALIDATED = 100, 500
"""How many validation sentences decide on int8."""
_MOST_BLEU_LOST = 0.3
"""How much less BLEU int8 may have on them."""


def convert(run: RunDirectory, checkpoint: str) -> Path:
    """Convert a checkpoint, unless another process has just done that; return the folder of its engine."""
    loaded = load_model(run, checkpoint)
    weights = loaded.checkpoint.checksums[MODEL]
    make_folder(run.engine_dir)
    with locked(run.engine_dir):
        folder = find_engine(run, weights)
        if folder is not None:
            return folder
        remove_leftovers(run.engine_dir)
        LOG.info("preparing the fast engine for %s, once", loaded.checkpoint.name)
        folder = run.engine_dir / weights
        with new_folder(folder) as partial:
            try:
                LOG.info("%s", _make(partial, run, loaded))
            except ExportError as error:
                LOG.warning("torch will translate with this checkpoint: %s", error)
                shutil.rmtree(partial)
                partial.mkdir()
                (partial / REFUSED).write_text(f"CTranslate2 does not translate as torch does: {error}")
    remove_stale(run)
    return find_engine(run, weights) or folder


def validation_pairs(config: Config, most: int) -> list[tuple[str, str]]:
    """The first pairs of the validation split that have text on both sides; none if it cannot be read."""
    try:
        # With the cleaning of the run, or a cached corpus would not be found.
        rows = load_split(config.data, "validation", config.cleaning)
    except MtError as error:
        LOG.info("the validation split is missing: %s", error)
        return []
    pairs = ((row["src"], row["tgt"]) for row in rows)
    return list(islice((pair for pair in pairs if all(map(str.strip, pair))), most))


def _make(folder: Path, run: RunDirectory, loaded: LoadedModel) -> str:
    """Write and verify the model in each of its precisions; return what users are told."""
    facts: dict[str, Any] = {
        "ctranslate2": ctranslate2.__version__,
        "torch": torch.__version__,
        "processor": platform.processor() or platform.machine(),
    }
    tokenizers = loaded.src_tokenizer, loaded.tgt_tokenizer

    def write(precision: ExportPrecision) -> None:
        (folder / precision).mkdir()
        write_ctranslate2(loaded, folder / precision, precision)

    def engine(precision: ExportPrecision) -> CTranslate2Engine:
        return CTranslate2Engine(folder / "float32", *tokenizers, precision=precision)

    write("float32")
    exact = engine("float32")
    fast = translator_of(loaded, exact)
    facts["largest difference of a log-probability"] = _compare_scores(loaded, exact)
    pairs = validation_pairs(loaded.config, _MOST_VALIDATED)
    sources, references = [src for src, _ in pairs], [tgt for _, tgt in pairs]
    conclusion = "verified against torch"
    if pairs:
        facts["agreements"] = [asdict(each) for each in verify(loaded, fast.translate, sources, references)]
    if len(pairs) >= _FEWEST_VALIDATED:
        lower = translator_of(loaded, engine("int8"))
        before, after = (bleu(each.translate(sources), references) for each in (fast, lower))
        facts["BLEU in float32 and int8"] = before, after
        is_good = before - after <= _MOST_BLEU_LOST
        if is_good:
            write("int8")
        conclusion += (
            f"; on a CPU {'int8' if is_good else 'float32'} is used: on {len(pairs)} validation sentences, "
            f"int8 changes BLEU by {after - before:+.2f}"
        )
    for path in folder.iterdir():
        record = record_of(loaded, "ctranslate2", run.name, "int8" if path.name == "int8" else "float32")
        write_export_record(path, replace(record, made_from=checksums_of(run), verified=facts))
    return conclusion


def _compare_scores(loaded: LoadedModel, engine: CTranslate2Engine) -> float:
    """The largest difference of a log-probability of random ids, which need no corpus."""
    drawn = random.Random(1)
    longest = max(1, min(_RANDOM_LENGTH, loaded.config.data.max_length - 1))
    sources, targets = (
        [
            drawn.choices(range(len(SPECIAL_TOKENS), size), k=drawn.randint(1, longest))
            for _ in range(_NUM_RANDOM)
        ]
        for size in (loaded.src_tokenizer.size, loaded.tgt_tokenizer.size)
    )
    sentences = [*map(Sentence, count(1), sources, targets)]
    ours, theirs = ModelTranslator(loaded, device=CPU).engine.score(sentences), engine.score(sentences)
    pairs = zip(chain.from_iterable(ours), chain.from_iterable(theirs), strict=True)
    worst = max(abs(one - other) for one, other in pairs)
    if not worst <= _MAX_DIFFERENCE:
        raise ExportError(f"log-probabilities of random sentences differ by {worst:.2g}.")
    return worst
