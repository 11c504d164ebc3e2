"""Comparing systems on the same sentences, with the significance of the differences (`mt compare`)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mt.config.load import load_config
from mt.data.sources.source import Split
from mt.data.sources.text import lines_of
from mt.device import choose_device
from mt.display import counted, visible
from mt.errors import ConfigError, DataError
from mt.evaluation.analysis import ComparedSentence, most_different_sentences
from mt.evaluation.evaluate import translate_set
from mt.evaluation.scores import (
    MAX_RESAMPLED_LINES,
    NUM_RESAMPLES,
    Compared,
    Texts,
    in_form,
    metrics_of_evaluation,
    paired_bootstrap,
)
from mt.evaluation.test_set import EvaluationSet, load_evaluation_set, warn_of_leaks, warn_of_other_split
from mt.inference.loaded_model import LoadedModel, load_model
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam


@dataclass(frozen=True)
class Comparison:
    """The scores of systems, and the sentences in which they differ most."""

    systems: list[str]
    """The files of their translations."""
    data: str
    num_sentences: int
    num_rewritten: int
    """References that were rewritten in the form of the run's training text, as all translations were."""
    scores: dict[str, list[Compared]]
    """Of each system, in their order."""
    sentences: list[ComparedSentence]
    groups: dict[str, float]
    """By metric, p of two groups of systems, as of `group_p_value`; empty for systems that are no groups."""


def run_comparison(
    systems: Sequence[str | Path],
    *,
    tgt: str | None = None,
    src: str | None = None,
    split: Split = "test",
    checkpoint: str = "best",
    device: str | torch.device = "auto",
    data_path: str | None = None,
    data_name: str | None = None,
    beam: Beam | None = None,
    num_shown: int = 10,
    against: Sequence[str | Path] = (),
) -> Comparison:
    """Score systems against the same references, and compare them with the first; runs translate first.

    A system is a run directory, a checkpoint (such as ``runs/x/checkpoints/step_0002000``), or a file of
    translations, one per line. The test set is a split of the first run's corpus, or of the run in whose
    directory the files are, unless ``data_path`` names another (see `load_evaluation_set`). If that run has
    several directions, ``tgt`` and ``src`` choose one. With ``against``, the systems are seeds of one
    setting, and these are seeds of another.

    Raises:
        MtError: If a system cannot be read or translate, or the systems do not belong together.
    """
    num_first = len(systems)
    if against and min(num_first, len(against)) < 2:
        raise ConfigError(
            "--against needs two systems or more on each side, because the scores of one say nothing about "
            "other seeds. Train each setting with several values of training.seed."
        )
    device = choose_device(device)
    paths = [Path(system) for system in (*systems, *against)]
    runs: dict[Path, RunDirectory] = {}
    models: dict[Path, tuple[RunDirectory, LoadedModel]] = {}
    # Runs are opened before reading the corpus, because training may remove a checkpoint at any time.
    for system in sorted(paths, key=lambda path: not path.is_dir()):
        run, name = _run_of(system)
        if system.is_dir():
            models[system] = run.require(), load_model(run, name or checkpoint)
        if run.exists:
            runs.setdefault(run.path, run)
    if not runs:
        raise ConfigError(
            f"none of {', '.join(map(str, systems))} is in a run, so there is nothing to compare them with: "
            "sacrebleu compares other files."
        )
    first_run = next(iter(runs.values()))
    config = load_config(first_run.config_file)
    test_set = load_evaluation_set(config, split, path=data_path, name=data_name, direction=(src, tgt))
    for run, loaded in models.values():
        known = loaded.config.data.directions
        if test_set.direction not in known and len(known) + len(config.data.directions) > 2:
            languages = " to ".join(test_set.direction)
            raise ConfigError(f"{run.path} does not translate {languages}, only {loaded.facts.known}.")
    for run in runs.values():
        warn_of_other_split(run, test_set)
    if data_path is not None:
        warn_of_leaks(test_set, config, first_run.written_dir)
    count = len(test_set.references)
    if count > MAX_RESAMPLED_LINES:
        raise DataError(
            f"{count:,} sentences are too many for the paired bootstrap, which would take gigabytes for "
            f"them: compare at most {MAX_RESAMPLED_LINES:,}."
        )
    # Files are read before anything is translated, which may replace them.
    texts = {system: (system, _read(system, test_set)) for system in paths if system not in models}
    for system, (run, loaded) in models.items():
        translator = ModelTranslator(loaded, device=device)
        _, translated, file = translate_set(run, translator, [loaded], test_set, beam)
        texts[system] = file, translated
    files, lines = zip(*(texts[system] for system in paths), strict=True)
    return Comparison(
        systems=[visible(str(file)) for file in files],
        data=test_set.where,
        num_sentences=count,
        num_rewritten=test_set.num_rewritten,
        scores=paired_bootstrap(lines, test_set.references),
        sentences=most_different_sentences(test_set.sources, lines, test_set.references, num_shown),
        groups=compare_groups(lines[:num_first], lines[num_first:], test_set.references) if against else {},
    )


def _read(file: Path, test_set: EvaluationSet) -> list[str]:
    lines = [*lines_of(file)]
    count = len(test_set.references)
    if len(lines) != count:
        raise DataError(
            f"{file} has {counted(len(lines), 'line')}, but {test_set.where} has "
            f"{counted(count, 'reference')}: they do not belong together."
        )
    return in_form(test_set.form, lines)


def _run_of(system: Path) -> tuple[RunDirectory, str | None]:
    """The run of a run directory, a checkpoint or a file of translations, and the checkpoint's name."""
    if not system.is_dir():
        return RunDirectory(system.parent), None
    # "step_0002000" alone, as in the folder of the checkpoints, has no parents.
    checkpoint = system if system.parent.name else system.absolute()
    run = RunDirectory(checkpoint.parent.parent)
    if checkpoint.parent == run.checkpoints_dir and run.exists:
        return run, checkpoint.name
    return RunDirectory(system), None


def compare_groups(first: Sequence[Texts], second: Sequence[Texts], references: Texts) -> dict[str, float]:
    """The p-value of `group_p_value` for two groups of translations, by each metric of `mt evaluate`."""
    p_values = {}
    for key, metric in metrics_of_evaluation(references).items():
        stats = []
        for hypotheses in (*first, *second):
            of_sentences = metric._extract_corpus_statistics(list(hypotheses), [list(references)])
            stats.append(np.array(of_sentences, dtype=np.float64))
        p_values[key] = group_p_value(stats, len(first), metric._compute_score_from_stats)
    return p_values


def group_p_value(stats: Sequence[Any], num_first: int, compute: Callable[[Any], Any]) -> float:
    """The probability of such a difference between equal settings, with other seeds and other sentences.

    This is min F' (Clark 1973, "The language-as-fixed-effect fallacy") as a t-test: the variance of the
    difference is that over seeds (Welch 1947) plus that over sentences. The latter is found by bootstrap
    resampling (Koehn 2004), because ``compute`` scores whole test sets. Resampling so few seeds as well would
    underestimate their variance, and call equal settings different.

    Args:
        stats: Of each system, the statistics of the same N sentences, ``(N, K)``.
        num_first: How many systems are in the first group.
        compute: The score of statistics that were summed over sentences, ``(K,)``.
    """
    num_sentences = len(stats[0])
    chances = np.full(num_sentences, 1 / num_sentences)
    generator = np.random.default_rng(12345)
    draws = generator.multinomial(num_sentences, chances, NUM_RESAMPLES)
    # The test set itself comes first.
    weights = np.vstack([np.ones(num_sentences), draws])
    scores = []
    for system in stats:
        summed = weights @ system
        scores.append([compute(row).score for row in summed])
    first = np.array(scores[:num_first])
    second = np.array(scores[num_first:])
    gains = second.mean(axis=0) - first.mean(axis=0)
    variances = [gains[1:].var()]
    freedoms = [num_sentences]
    for group in (first, second):
        variances.append(group[:, 0].var(ddof=1) / len(group))
        freedoms.append(len(group) - 1)
    total = sum(variances)
    if not total or not gains[0]:
        return float(not gains[0])
    # Satterthwaite (1946).
    freedom = total**2 / np.sum(np.square(variances) / freedoms)
    # The probability that Student's t is at least as far from 0. With t = sqrt(freedom) * tan(angle), its
    # density is a power of the cosine.
    angles = np.linspace(0, math.pi / 2, 100_001)
    density = np.cos(angles) ** (freedom - 1)
    beyond = angles >= math.atan(abs(gains[0]) / math.sqrt(total * freedom))
    return float(density[beyond].sum() / density.sum())
