"""Test sets: a split of the run's corpus, another corpus, or a standard test set of sacreBLEU."""

import contextlib
import hashlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import ne
from pathlib import Path
from typing import Any, get_args

import datasets
from sacrebleu.dataset import DATASETS

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.data.cleaning.leaks import LeakCheck
from mt.data.corpus import NamedSet, load_corpus, load_parts, load_split, sets_of_sources
from mt.data.corpus_report import recorded_fingerprints
from mt.data.sources.find import find_source
from mt.data.sources.source import Split
from mt.data.sources.text import lines_of
from mt.data.suspicions import sample_of, text_warnings
from mt.data.text_form import TextForm, shows_nothing
from mt.display import visible
from mt.errors import ConfigError, DataError
from mt.evaluation.scores import in_form, on_one_line
from mt.run_directory import RunDirectory
from mt.sides import Sides

LOG = logging.getLogger(__name__)

PREFIX = "sacrebleu:"


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences to translate, with one reference each."""

    name: str
    """The split or the data, and a checksum of the sentences, for file names."""
    where: str
    """The corpus and the split, for messages."""
    direction: Sides[str]
    """Its languages."""
    sources: list[str]
    references: list[str]
    """In the form of the run's training text; none of them is empty, and none has a line break."""
    form: TextForm
    num_rewritten: int
    """References that had another form."""
    own_split: Split | None = None
    """The split of the run's own corpus, or of one of its sources; None for another corpus."""
    fingerprint: str | None = None
    """That of the split of the run's own corpus, comparable with ``corpus.json``."""


def load_evaluation_set(
    config: Config, split: Split, *, path: str | None = None, name: str | None = None
) -> EvaluationSet:
    """The set of `load_evaluation_sets` for the direction of ``data.path``."""
    own, *_ = config.data.directions
    [test_set] = load_evaluation_sets(config, split, path=path, name=name, tgt=own.tgt, src=own.src)
    return test_set


def load_evaluation_sets(
    config: Config,
    split: Split,
    *,
    path: str | None = None,
    name: str | None = None,
    tgt: str | None = None,
    src: str | None = None,
    only_one: bool = False,
) -> list[EvaluationSet]:
    """The test set of each of a run's directions, or of those into ``tgt`` and from ``src``.

    It is a split of the run's corpus, and for a further direction that of the first source that has it; or
    another corpus in ``path``, or the standard test set in ``sacrebleu:NAME``, which is of one direction.
    Files without splits are used as a whole. Pairs with an empty reference are an error.
    """
    if split not in (splits := get_args(Split)):
        raise ValueError(f"split must be {', '.join(splits)}, not {split!r}")
    if name is not None and (path is None or path.startswith(PREFIX)):
        raise ConfigError(f"{name!r} is the configuration of a Hub corpus: give its path as well.")
    directions = config.data.directions
    chosen = [each for each in directions if tgt in (None, each.tgt) and src in (None, each.src)]
    if not chosen:
        asked = f"from {src or 'any language'} into {tgt or 'any other'}"
        raise ConfigError(f"this model does not translate {asked}, only {in_words(directions)}.")
    if len(chosen) > 1 and (only_one or path):
        known = f"this model translates {in_words(chosen)}"
        raise ConfigError(f"{known}: choose one by --to and --from, or in Python by tgt and src.")
    if path is None:
        return _splits_of_run(config, split, chosen)
    [direction] = chosen
    # A built-in corpus has as many pairs as are asked for; any other corpus is used as a whole.
    limit = config.data.num_train_pairs if path.startswith("builtin:") else None
    changes: dict[str, Any] = {"name": name, "revision": None, "num_train_pairs": limit, "sources": {}}
    if direction != directions[0]:
        changes |= {"columns": None, "delimiter": "auto", **direction._asdict()}
    data = config.data.model_copy(update={"path": path, **changes})
    if path.startswith(PREFIX):
        pairs, is_whole = load_standard_set(path.removeprefix(PREFIX), data), True
        stem, where = for_file_name(path), path
    else:
        pairs, is_whole = _load_other(data, split)
        stem, where = for_file_name(Path(path).name), f"{path}, {name}" if name else path
        stem = stem if is_whole else f"{stem}.{split}"
    for warning in text_warnings({"evaluated": sample_of(pairs, TextForm.of(config.cleaning))}):
        LOG.warning("%s", warning)
    named = NamedSet(pairs, direction)
    return [_evaluation_set(config, named, stem, where, None if is_whole else split)]


def in_words(directions: Sequence[Sides[str]]) -> str:
    """Directions in words."""
    return ", ".join(f"{src} to {tgt}" for src, tgt in directions)


def _splits_of_run(config: Config, split: Split, chosen: Sequence[Sides[str]]) -> list[EvaluationSet]:
    """The split of the run's corpus, and for each further direction that of the first source that has it."""
    data, found = config.data, list[tuple[NamedSet, str, str | None]]()
    own, *others = data.directions
    if split == "train" and others:
        corpus, end = load_corpus(data, config.cleaning), 0
        for source in corpus.report.sources:
            start, end = end, end + source.pairs
            pairs = corpus.train.select(range(start, end))
            found.append((NamedSet(pairs, source.direction), source.path, None))
    else:
        if own in chosen:
            pairs = load_split(data, split, config.cleaning)
            found.append((NamedSet(pairs, own), data.path, pairs._fingerprint))
        of_sources = sets_of_sources(data, split) if chosen != [own] else {}
        found += [(of_source, data.sources[name].path, None) for name, of_source in of_sources.items()]
    sets: dict[Sides[str], EvaluationSet] = {}
    for named, path, fingerprint in found:
        if named.direction in chosen and named.direction not in sets:
            test_set = _evaluation_set(config, named, split, path, split)
            sets[named.direction] = replace(test_set, own_split=split, fingerprint=fingerprint)
    if missing := [direction for direction in chosen if direction not in sets]:
        problem = f"no source has a {split} split for {in_words(missing)}"
        if not sets:
            raise DataError(f"{problem}: give another corpus with --data.")
        LOG.warning("%s: not evaluated", problem)
    return list(sets.values())


def _evaluation_set(
    config: Config, named: NamedSet, stem: str, where: str, split: Split | None
) -> EvaluationSet:
    """Check the pairs, and name the set, with its languages if the run has several directions."""
    (pairs, direction), form = named, TextForm.of(config.cleaning)
    if len(config.data.directions) > 1:
        stem, where = f"{stem}-{for_file_name('-'.join(direction))}", f"{where}, {in_words([direction])}"
    if split:
        where = f"{where}, {split}"
    # As in the file of references: some of sacreBLEU's tokenizers join words at a hyphen before a line break.
    sources, written = list(pairs["src"]), [on_one_line(text) for text in pairs["tgt"]]
    references = in_form(form, written)
    num_rewritten = sum(map(ne, references, written))
    empty = [number for number, reference in enumerate(references, start=1) if shows_nothing(reference)]
    if empty:
        more = f", and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise DataError(
            f"{where}, sentence {empty[0]}{more}: the reference is empty, so nothing can be scored "
            "against it. Add a translation, or remove the pair."
        )
    # As JSON, which separates sentences unambiguously.
    checksum = hashlib.blake2b(json.dumps([sources, references]).encode(), digest_size=6).hexdigest()
    name, where = f"{stem}-{checksum}", visible(where)
    return EvaluationSet(name, where, direction, sources, references, form, num_rewritten)


def _load_other(other: DataConfig, split: Split) -> tuple[datasets.Dataset, bool]:
    """A split of another corpus, or all of a corpus without splits, and whether it is all.

    If it cannot be read with ``data.columns`` and ``data.delimiter``, which are those of the run's corpus,
    the columns that are named like the languages are read.
    """
    try:
        source = find_source(other)
        if source.kind == "files":
            return load_parts(source.splits["train"]), True
        return load_split(other, split), False
    except DataError:
        if other.columns is None and other.delimiter == "auto":
            raise
        with contextlib.suppress(DataError):
            loaded = _load_other(other.model_copy(update={"columns": None, "delimiter": "auto"}), split)
            LOG.warning(
                f"{other.path} cannot be read with the run's data.columns and data.delimiter: its columns "
                f"{other.src} and {other.tgt} are read instead"
            )
            return loaded
        raise


def was_trained_with_another(run: RunDirectory, test_set: EvaluationSet) -> bool:
    """Whether ``corpus.json`` says that this split of a run's corpus had other pairs; False if unknown."""
    split, fingerprint = test_set.own_split, test_set.fingerprint
    with contextlib.suppress(OSError, ValueError):
        recorded = recorded_fingerprints(run.read_corpus_report())
        if split is not None and fingerprint is not None:
            return recorded.get(split, fingerprint) != fingerprint
    return False


def warn_of_other_split(run: RunDirectory, test_set: EvaluationSet) -> None:
    """Log a warning if a run held out other pairs than these, and so may have been trained on them."""
    if was_trained_with_another(run, test_set):
        LOG.warning(
            f"{run.path} was trained with another {test_set.own_split} split than this one, and may have "
            "been trained on some of these sentences"
        )


def warn_of_leaks(test_sets: Sequence[EvaluationSet], config: Config) -> None:
    """Log a warning if pairs of test sets are also in the training data, which is read."""
    held_out = [test_set for test_set in test_sets if test_set.own_split != "train"]
    pairs = {
        one.name: datasets.Dataset.from_dict({"src": one.sources, "tgt": one.references}) for one in held_out
    }
    if not held_out:
        return
    check = LeakCheck(pairs, TextForm.of(config.cleaning))
    try:
        check.search(load_corpus(config.data, config.cleaning).train)
    except DataError as error:
        LOG.warning("pairs that are also in the training data are not counted: %s", error)
    for test_set, leaks in zip(held_out, check.report().values(), strict=True):
        if leaks.pair:
            LOG.warning(
                f"also in the training data: {leaks.pair:,} of the {leaks.pairs:,} pairs of "
                f"{test_set.where} (ignoring case, spacing and punctuation), which raises the scores"
            )


def for_file_name(text: str) -> str:
    """The text with a hyphen for what has a meaning in the names of files."""
    # A file name may have 255 bytes, and a Chinese character takes three.
    short = re.sub(r"[^\w.-]+", "-", text).encode()[:60].decode(errors="ignore")
    return short.strip("-.") or "data"


def _stripped_lines(file: str) -> list[str]:
    return [line.strip() for line in lines_of(Path(file))]


def load_standard_set(name: str, data: DataConfig) -> datasets.Dataset:
    """Load the sources and references that ``sacrebleu -t NAME -l SRC-TGT`` scores against."""
    if name not in DATASETS:
        raise DataError(
            f"sacreBLEU has no test set {name!r}: `sacrebleu --list` lists its test sets, such as wmt14."
        )
    dataset: Any = DATASETS[name]
    languages = f"{data.src}-{data.tgt}"
    if languages not in dataset.langpairs:
        raise DataError(
            f"sacreBLEU's {name} has no {languages}, only {', '.join(sorted(dataset.langpairs))}."
        )
    try:
        files = [dataset.get_source_file(languages), *dataset.get_reference_files(languages)]
        # As sacreBLEU reads them: a carriage return does not end a line.
        sources, references, *others = map(_stripped_lines, files)
        if len(sources) != len(references):
            raise EOFError
    # Servers, archives and locks fail in many ways; sacreBLEU reports a wrong checksum by SystemExit.
    except (Exception, SystemExit) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is damaged"
        # The next time, sacreBLEU would use an unfinished download as if it were complete.
        raise DataError(
            f"sacreBLEU's test set {name} is missing or incomplete in {dataset._outdir}, and could not be "
            f"downloaded: {reason}. Remove that folder and try again online, or copy its files from a "
            "machine that has them."
        ) from error
    if others:
        raise DataError(
            f"sacreBLEU's {name} has several references for each sentence of {languages}, but mt scores "
            "against one: translate its source as a file, and score the translations with sacrebleu."
        )
    return datasets.Dataset.from_dict({"src": sources, "tgt": references})
