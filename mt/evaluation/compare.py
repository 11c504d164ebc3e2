"""`mt compare`: two systems on the same sentences, and whether their difference is more than chance."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from mt.atomic_files import write_output
from mt.config.data import DataConfig
from mt.config.load import load_config
from mt.data.sources.source import Split
from mt.errors import ConfigError, DataError
from mt.evaluation.analysis import SentenceOfTwo, most_different_sentences
from mt.evaluation.evaluate import translate_set
from mt.evaluation.scores import refuse_empty
from mt.evaluation.significance import Difference, paired_bootstrap
from mt.evaluation.test_set import EvaluationSet, load_evaluation_set, read_lines
from mt.inference.loaded_model import load_trained
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.wording import counted


@dataclass(frozen=True)
class Comparison:
    """What two systems score, and where they differ."""

    systems: tuple[str, str]
    """The files of their translations."""
    data: str
    """Where the sentences come from."""
    num_sentences: int
    scores: dict[str, Difference]
    sentences: list[SentenceOfTwo]


def run_comparison(
    systems: tuple[Path, Path],
    *,
    split: Split,
    checkpoint: str,
    device: torch.device,
    data_path: str | None = None,
    data_name: str | None = None,
    references: Path | None = None,
    beam: Beam | None = None,
    num_shown: int = 10,
) -> Comparison:
    """Judge two systems on the same references; what is a run translates them first.

    Args:
        systems: Run directories, or files of translations, one a line.
        split: Which part of the corpus of the first run, or, of files, of the run that the first lies in.
        checkpoint: best, latest, or a checkpoint's name, of both runs.
        device: Where to compute.
        data_path: Another corpus, or a standard test set, as `load_evaluation_set` has it.
        data_name: The configuration of that corpus.
        references: The references as a file, for two files of translations that belong to no run.
        beam: Search with a beam; None searches greedily.
        num_shown: How many of the sentences to find in which they differ most.

    Raises:
        MtError: If a system cannot be used, their languages differ, or lines are missing.
    """
    sources: list[str] | None = None
    if references is not None:
        judged_on = _references_alone(systems, references)
    else:
        data = _corpus_of(systems)
        judged_on = load_evaluation_set(data, split, path=data_path, name=data_name)
        sources = judged_on.sources
    for system in systems:
        # What is there already is looked at before anything is translated.
        if not system.is_dir():
            if references is None and data_path is None:
                _refuse_other_split(system, split)
            if references is None:
                _refuse_other_sentences(system, judged_on)
            _refuse_other_length(system, read_lines(system), judged_on)
    files = [
        _translate(RunDirectory(system), judged_on, checkpoint, device, beam) if system.is_dir() else system
        for system in systems
    ]
    first, second = map(read_lines, files)
    return Comparison(
        systems=(str(files[0]), str(files[1])),
        data=judged_on.where,
        num_sentences=len(judged_on.references),
        scores=paired_bootstrap(first, second, judged_on.references),
        sentences=most_different_sentences(sources, (first, second), judged_on.references, num_shown),
    )


def write_comparison(comparison: Comparison, file: Path) -> None:
    """Write all that was found as JSON, in place of what ``file`` held."""
    write_output(file, json.dumps(asdict(comparison), indent=2, ensure_ascii=False) + "\n")


def _references_alone(systems: Sequence[Path], references: Path) -> EvaluationSet:
    for system in systems:
        if system.is_dir():
            raise ConfigError(
                f"{system} is a run, which translates sources, and --references FILE has none: leave it out, "
                "or give two files of translations."
            )
    found = EvaluationSet(references.stem, str(references), [], read_lines(references))
    refuse_empty(found.references, found.where)
    return found


def _corpus_of(systems: Sequence[Path]) -> DataConfig:
    """The corpus of the first system that is a run, or lies in one; all must be of the same languages."""
    runs = [RunDirectory(system if system.is_dir() else system.parent) for system in systems]
    given = [run.require() for run, system in zip(runs, systems, strict=True) if system.is_dir()]
    given = given or [run for run in runs if run.exists]
    if not given:
        raise ConfigError(
            f"neither {systems[0]} nor {systems[1]} is a run or lies in one: say what to compare them with, "
            "with --references FILE."
        )
    first, *others = [load_config(run.config_file).data for run in given]
    for other in others:
        if (other.src, other.tgt) != (first.src, first.tgt):
            raise ConfigError(
                f"{given[0].path} translates from {first.src} to {first.tgt} and {given[1].path} from "
                f"{other.src} to {other.tgt}: compare runs of the same languages."
            )
    return first


def _translate(
    run: RunDirectory, judged_on: EvaluationSet, checkpoint: str, device: torch.device, beam: Beam | None
) -> Path:
    """Let a run translate; the file of its translations."""
    return translate_set(run, load_trained(run, checkpoint), judged_on, device=device, beam=beam).file


def _refuse_other_sentences(file: Path, judged_on: EvaluationSet) -> None:
    """The name of a file of `translate_set` has the checksum of its test set; older ones have none."""
    named = re.match(r"hypotheses\.(.+-([0-9a-f]{12}))\.(?:step|average)_\d", file.name)
    if named and named[2] != judged_on.checksum:
        raise ConfigError(
            f"{file} holds translations of other sentences than {judged_on.where}: add the --data that they "
            f"are of, or --references {file.with_name(f'references.{named[1]}.txt')}."
        )


def _refuse_other_split(file: Path, split: Split) -> None:
    """Splits may have as many lines as one another, so that the name alone tells that one was mistaken."""
    named = re.match(r"hypotheses\.(train|validation|test)(?:-[0-9a-f]{12})?\.(?:step|average)_", file.name)
    if named and named[1] != split:
        raise ConfigError(f"{file} holds translations of the {named[1]} split: add --split {named[1]}.")


def _refuse_other_length(file: Path, lines: list[str], judged_on: EvaluationSet) -> None:
    if len(lines) != len(judged_on.references):
        raise DataError(
            f"{file} has {counted(len(lines), 'line')}, but {judged_on.where} has "
            f"{counted(len(judged_on.references), 'reference')}: they do not belong together."
        )
