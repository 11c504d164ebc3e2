"""Translates a test set and scores the translations (`mt evaluate`)."""

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import mt
from mt import distributed, processes
from mt.checkpoint.record import MODEL
from mt.config.load import load_config
from mt.data.sources.source import Split
from mt.device import PrecisionName, choose_device
from mt.display import counted, progress, shown, visible
from mt.errors import ConfigError, RunError
from mt.evaluation.analysis import Analysis, ScoredSentence, analyse_lengths, worst_sentences
from mt.evaluation.record import RecordedEvaluation, Score, name_in_setting, record_evaluation
from mt.evaluation.scores import Texts, exact_match, in_form, on_one_line, score_with_confidence
from mt.evaluation.test_set import EvaluationSet, load_evaluation_set, warn_of_leaks, warn_of_other_split
from mt.files import write_atomically
from mt.inference.engines import Engine
from mt.inference.loaded_model import LoadedModel, load_ensemble
from mt.inference.model_translator import ModelTranslator
from mt.inference.translator import EngineChoice, Translator
from mt.run_directory import RunDirectory, as_run
from mt.search.strategy import Beam

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Evaluation(RecordedEvaluation):
    """How well a run translates a test set."""

    hypotheses_file: Path
    references_file: Path
    """The references, one per line, for sacreBLEU's own command."""
    analysis: Analysis | None
    worst: list[ScoredSentence]
    ensemble: list[str]
    """The folders of the other checkpoints of an ensemble; empty for a single model."""


def run_evaluation(
    run: str | Path | RunDirectory,
    *,
    tgt: str | None = None,
    src: str | None = None,
    split: Split = "test",
    checkpoint: str = "best",
    device: str | torch.device = "auto",
    precision: PrecisionName = "float32",
    engine: EngineChoice = "torch",
    data_path: str | None = None,
    data_name: str | None = None,
    beam: Beam | None = None,
    literature: Callable[[Texts, Texts, str], Score] | None = None,
    analyse: bool = True,
    num_worst: int = 10,
    outputs: Path | None = None,
    others: Sequence[str | Path | RunDirectory] = (),
) -> Evaluation:
    """Translate a test set, score the translations, and write them into the run directory.

    Args:
        run: The run directory.
        tgt: The language to translate into, of a model that translates into several.
        src: The language to translate from, if it translates into that from several.
        split: train, validation or test.
        checkpoint: best, latest, or a checkpoint's name.
        device: Where to compute: a device, or ``auto``, ``cpu``, ``cuda`` or ``mps``.
        precision: What to compute in; float32 unless told otherwise.
        engine: What searches; torch, the reference, unless told otherwise.
        data_path: Another corpus than the run's own, or a standard test set, as in `load_evaluation_set`.
        data_name: The configuration of that corpus.
        beam: The beam search; None searches greedily.
        literature: An additional score; it is called with the target language as third argument.
        analyse: Whether to also score by length, and read the training corpus to find pairs that are in it.
        num_worst: How many of the worst sentences to return.
        outputs: A folder for the lines of sources.txt, hypotheses.txt and references.txt, for other tools.
        others: Runs with the same vocabularies, to translate as an ensemble. Its scores are not recorded in
            the run directory, because they are not the run's.

    Raises:
        MtError: If the run, the checkpoint or the corpus cannot be used, or a reference is empty.
        SystemExit: In all processes except the first, once the sentences are translated.
    """
    run = as_run(run).require()
    other_runs = [as_run(other) for other in others]
    if engine != "torch" and other_runs:
        raise ConfigError("only torch translates as an ensemble: leave the engine out.")
    config = load_config(run.config_file)
    # Before reading the corpus, which may take long: training may remove this checkpoint at any time.
    models = load_ensemble([run, *other_runs], checkpoint)
    loaded, *rest = models
    written = run.written_dir
    test_set = load_evaluation_set(
        config, split, path=data_path, name=data_name, direction=(src, tgt), written=written
    )
    for member in (run, *other_runs):
        warn_of_other_split(member, test_set)
    device = choose_device(device)
    with distributed.connected(device.type):
        options: dict[str, Any] = {"device": device, "precision": precision}
        if engine == "torch":
            translator: Translator = ModelTranslator(loaded, others=rest, **options)
        else:
            options |= {"checkpoint": loaded.checkpoint.name, "engine": engine}
            translator = Translator.from_run(run, as_is=True, keep=(), **options)
        setting, hypotheses, file = translate_set(run, translator, models, test_set, beam)
    if outputs is not None:
        outputs.mkdir(parents=True, exist_ok=True)
        write_lines(outputs / "sources.txt", test_set.sources)
        write_lines(outputs / "hypotheses.txt", hypotheses)
        write_lines(outputs / "references.txt", test_set.references)
    LOG.info("scoring %s", counted(len(hypotheses), "sentence"))
    scores = score_with_confidence(hypotheses, test_set.references)
    if literature:
        scores["literature_bleu"] = literature(hypotheses, test_set.references, test_set.direction.tgt)
    if analyse:
        warn_of_leaks(test_set, config, written)
    texts = test_set.sources, hypotheses, test_set.references
    evaluation = Evaluation(
        time=datetime.now(UTC).replace(microsecond=0),
        mt_version=mt.__version__,
        setting=setting,
        data=test_set.where,
        direction=" to ".join(test_set.direction),
        checkpoint=loaded.checkpoint.name,
        step=loaded.checkpoint.step,
        search="greedy search" if beam is None else str(beam),
        engine=translator.engine.name,
        precision=translator.engine.precision,
        num_sentences=len(hypotheses),
        scores=scores,
        exact=exact_match(hypotheses, test_set.references),
        num_rewritten=test_set.num_rewritten,
        hypotheses_file=file,
        references_file=_references_file(run, test_set),
        analysis=analyse_lengths(*texts) if analyse else None,
        worst=worst_sentences(*texts, num_worst),
        ensemble=[visible(str(model.checkpoint.folder)) for model in rest],
    )
    if not rest:
        record_evaluation(run, evaluation)
    return evaluation


def _references_file(run: RunDirectory, test_set: EvaluationSet) -> Path:
    return run.path / f"references.{test_set.name}.txt"


def translate_set(
    run: RunDirectory,
    translator: Translator,
    models: Sequence[LoadedModel],
    test_set: EvaluationSet,
    beam: Beam | None,
) -> tuple[str, list[str], Path]:
    """Write translations of a test set and its references into the run; return setting, lines and file."""
    if not os.access(run.path, os.W_OK):
        raise RunError(f"{shown(run.path)} is read-only, but the translations are saved there: copy the run.")
    lines = translate_lines(translator, test_set, test_set.sources, beam)
    if not processes.IS_FIRST:
        # The others have nothing more to do.
        raise SystemExit(0)
    setting = setting_name(models, test_set, beam, translator.engine)
    file = run.path / f"hypotheses.{setting}.txt"
    write_lines(_references_file(run, test_set), test_set.references)
    write_lines(file, lines)
    return setting, lines, file


def translate_lines(
    translator: Translator, test_set: EvaluationSet, sources: Texts, strategy: Beam | None = None
) -> list[str]:
    """Translations as they are scored: each on one line, in the form of the run's training text."""
    if translator.facts.directions:
        translator = translator.into(test_set.direction.tgt, test_set.direction.src)
    with progress(len(sources), unit="sentences", description="translating") as advance:
        n_best = translator.n_best(
            sources, strategy=strategy, join_lines=True, with_scores=False, advance=advance
        )
    if num_cut := sum(best.is_cut for best, *_ in n_best):
        LOG.warning("%s", translator.facts.cut_warning(num_cut))
    # On one line, which does not change any score.
    return in_form(test_set.form, [on_one_line(best.text) for best, *_ in n_best])


def setting_name(
    models: Sequence[LoadedModel], test_set: EvaluationSet, beam: Beam | None, engine: Engine
) -> str:
    """The test set, the checkpoint and the decoding strategy, for file names."""
    mean = "-mean" if beam and beam.length_normalization == "mean" else ""
    search = f"beam{beam.size}-lp{beam.length_penalty:g}{mean}" if beam else "greedy"
    if engine.precision != "float32":
        search += f"-{engine.precision}"
    if engine.name != "torch":
        search += f"-{engine.name}"
    first, *others = models
    if others:
        weights = " ".join(other.checkpoint.checksums[MODEL] for other in others)
        search += f"-ensemble{len(models)}-{hashlib.blake2b(weights.encode(), digest_size=2).hexdigest()}"
    return f"{test_set.name}.{name_in_setting(first.checkpoint)}.{search}"


def write_lines(file: Path, texts: Texts) -> None:
    """Write each text on a line of its own."""
    write_atomically(file, "".join(on_one_line(text) + "\n" for text in texts))
