"""Comparing two systems on the same sentences, with the significance of the difference (`mt compare`)."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from mt.config.config import Config
from mt.config.load import load_config
from mt.data.sources.source import Split
from mt.display import counted, visible
from mt.errors import ConfigError, DataError, Remedy
from mt.evaluation.analysis import SentenceOfTwo, most_different_sentences
from mt.evaluation.evaluate import setting_name, translate_set
from mt.evaluation.scores import (
    Difference,
    paired_bootstrap,
    refuse_bad_seed,
    refuse_empty,
    refuse_too_many,
)
from mt.evaluation.test_set import EvaluationSet, load_evaluation_set, read_lines, warn_of_other_split
from mt.files import write_atomically
from mt.inference.loaded_model import LoadedModel, load_model
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam


@dataclass(frozen=True)
class Comparison:
    """The scores of two systems, and the sentences in which they differ most."""

    systems: tuple[str, str]
    """The files of their translations."""
    data: str
    """The corpus and split of the sentences."""
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
    """Score two systems against the same references; runs translate the sources first.

    Args:
        systems: Run directories, their checkpoints (such as ``runs/x/checkpoints/step_0002000``), or files of
            translations, one per line.
        split: The split of the first run's corpus; for files, of the run whose directory they are in.
        checkpoint: best, latest, or a checkpoint's name, for systems that are run directories.
        device: Where to compute.
        data_path: Another corpus, or a standard test set, as in `load_evaluation_set`.
        data_name: The configuration of that corpus.
        references: The references as a file, for two files of translations outside run directories.
        beam: The beam search; None searches greedily.
        num_shown: How many sentences that differ most to return.
    """
    refuse_bad_seed()
    sources: list[str] | None = None
    loaded: list[tuple[RunDirectory, LoadedModel] | None] = [None, None]
    if references is not None:
        test_set = _references_alone(systems, references)
    else:
        runs = _runs_of(systems)
        # Both are opened before reading the corpus, because training may remove a checkpoint at any time.
        loaded = [_load(system, checkpoint) if system.is_dir() else None for system in systems]
        others = {str(run.path): config.data for run, config in runs}
        test_set = load_evaluation_set(runs[0][1], split, path=data_path, name=data_name, others=others)
        for run, _ in runs:
            warn_of_other_split(run, test_set)
        sources = test_set.sources
    refuse_too_many(test_set.references)
    given = {system: read_lines(system) for system in systems if not system.is_dir()}
    for system, lines in given.items():
        # Existing files are checked before anything is translated.
        if references is None and data_path is None:
            _refuse_other_split(system, split)
        if references is None:
            _refuse_other_sentences(system, test_set)
        _refuse_other_length(system, lines, test_set)
        for model in filter(None, loaded):
            _refuse_overwriting(system, *model, test_set, beam)
    files = [
        translate_set(*model, test_set, device=device, beam=beam).file if model else system
        for system, model in zip(systems, loaded, strict=True)
    ]
    first, second = (given[file] if file in given else read_lines(file) for file in files)
    return Comparison(
        systems=(visible(str(files[0])), visible(str(files[1]))),
        data=test_set.where,
        num_sentences=len(test_set.references),
        scores=paired_bootstrap(first, second, test_set.references),
        sentences=most_different_sentences(sources, (first, second), test_set.references, num_shown),
    )


def write_comparison(comparison: Comparison, file: Path) -> None:
    """Write the comparison as JSON; an existing ``file`` is replaced."""
    write_atomically(file, json.dumps(asdict(comparison), indent=2, ensure_ascii=False) + "\n")


def _references_alone(systems: Sequence[Path], references: Path) -> EvaluationSet:
    for system in systems:
        if system.is_dir():
            raise ConfigError(
                f"{system} is a run, which needs sources to translate, but a file of references has none: "
                "leave the references out, or give two files of translations."
            )
    found = EvaluationSet(references.stem, visible(str(references)), [], read_lines(references))
    refuse_empty(found.references, found.where)
    return found


def _runs_of(systems: Sequence[Path]) -> list[tuple[RunDirectory, Config]]:
    """The systems that are runs, then those that are in one, with their configs."""
    runs = sorted(((_run_of(system)[0], system.is_dir()) for system in systems), key=lambda run: not run[1])
    given = {run.path: run.require() for run, is_given in runs if is_given or run.exists}
    if not given:
        raise ConfigError(
            f"neither {systems[0]} nor {systems[1]} is in a run, so there is nothing to compare them with.",
            Remedy.GIVE_REFERENCES,
        )
    (run, config), *others = [(run, load_config(run.config_file)) for run in given.values()]
    first = config.data
    for other_run, other_config in others:
        other = other_config.data
        if (other.src, other.tgt) != (first.src, first.tgt):
            raise ConfigError(
                f"{run.path} translates from {first.src} to {first.tgt}, but {other_run.path} from "
                f"{other.src} to {other.tgt}: compare runs of the same languages."
            )
    return [(run, config), *others]


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


def _load(system: Path, checkpoint: str) -> tuple[RunDirectory, LoadedModel]:
    """Load the model of a run, or of one of its checkpoints."""
    run, name = _run_of(system)
    run.check_writable()
    return run, load_model(run, name or checkpoint)


def _refuse_other_sentences(file: Path, test_set: EvaluationSet) -> None:
    """Compare checksums: the file names of `translate_set` have one, except those of old versions."""
    named = re.match(r"hypotheses\.(.+-([0-9a-f]{12}))\.(?:step|average)_\d", file.name)
    if named and named[2] != test_set.checksum:
        raise ConfigError(
            f"{file} contains translations of other sentences than {test_set.where}; their references are in "
            f"{file.with_name(f'references.{named[1]}.txt')}.",
            Remedy.OTHER_TEST_SET,
            Remedy.GIVE_REFERENCES,
        )


def _refuse_other_split(file: Path, split: Split) -> None:
    """Compare the split in the file's name; two splits may have the same number of lines."""
    named = re.match(r"hypotheses\.(train|validation|test)(?:-[0-9a-f]{12})?\.(?:step|average)_", file.name)
    if named and named[1] != split:
        raise ConfigError(
            f"{file} has translations of the {named[1]} split, not of {split}.", Remedy.OTHER_SPLIT
        )


def _refuse_overwriting(
    file: Path, run: RunDirectory, loaded: LoadedModel, test_set: EvaluationSet, beam: Beam | None
) -> None:
    """Check that the translations of a run will not replace a file that they are compared with."""
    written = run.hypotheses_file(setting_name(loaded.checkpoint, test_set, beam))
    if written.exists() and written.samefile(file):
        raise ConfigError(
            f"{file} is the file that the translations of {run.path} are written to, so they would be "
            "compared with themselves: give a copy of the file under another name."
        )


def _refuse_other_length(file: Path, lines: list[str], test_set: EvaluationSet) -> None:
    if len(lines) != len(test_set.references):
        raise DataError(
            f"{file} has {counted(len(lines), 'line')}, but {test_set.where} has "
            f"{counted(len(test_set.references), 'reference')}: they do not belong together."
        )
