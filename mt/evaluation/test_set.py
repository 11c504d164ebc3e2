"""Test sets: a split of the run's corpus, another corpus, or a standard test set of sacreBLEU."""

import contextlib
import hashlib
import json
import logging
import re
from dataclasses import dataclass
from operator import ne
from pathlib import Path
from typing import Any, get_args

import datasets
from sacrebleu.dataset import DATASETS

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.data.cleaning.leaks import LeakCheck
from mt.data.corpus import load_corpus, load_parts, load_split, sets_of_sources
from mt.data.corpus_report import recorded_fingerprints
from mt.data.sources.find import find_source
from mt.data.sources.source import Split
from mt.data.sources.text import lines_of
from mt.data.suspicions import sample_of, text_warnings
from mt.data.text_form import TextForm, shows_nothing
from mt.display import visible
from mt.errors import ConfigError, DataError, RunError, SplitError
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
    sources: list[str]
    references: list[str]
    """In the form of the run's training text; none of them is empty, and none has a line break."""
    form: TextForm
    num_rewritten: int
    """References that had another form."""
    own_split: Split | None = None
    """The split of the run's own corpus; None for another corpus."""
    fingerprint: str | None = None
    """That of the split, comparable with ``corpus.json``."""


def load_evaluation_set(
    config: Config,
    split: Split,
    *,
    path: str | None = None,
    name: str | None = None,
    direction: tuple[str | None, str | None] | None = None,
    written: Path | None = None,
) -> EvaluationSet:
    """A split of the run's corpus or of another in ``path``, or the standard test set in ``sacrebleu:NAME``.

    It is of the direction of ``data.path``, or of the one that ``direction`` leaves: languages from and into
    which, or None for any. The split of a further one is that of the first of ``data.sources`` that has it.
    Files without splits are used as a whole. Pairs with an empty reference are an error. The training split
    has what a model wrote for it in the folder ``written``.
    """
    if split not in (splits := get_args(Split)):
        raise ValueError(f"split must be {', '.join(splits)}, not {split!r}")
    if name is not None and (path is None or path.startswith(PREFIX)):
        raise ConfigError(f"{name!r} is the configuration of a Hub corpus: give its path as well.")
    own, *others = config.data.directions
    if others and path is None and split == "train":
        raise ConfigError("the training pairs are of several directions: give those of one with --data.")
    sides = _choose(config.data, *(direction or own))
    data = config.data.model_copy(update=sides._asdict())
    stem = str(split)
    languages = f", {' to '.join(sides)}" if others else ""
    own_split, fingerprint = None, None
    if path is None and sides == own:
        pairs = load_split(data, split, config.cleaning, written=written)
        where = f"{data.path}{languages}, {split}"
        own_split, fingerprint = split, pairs._fingerprint
    elif path is None:
        of_sources = sets_of_sources(config.data, split, config.cleaning)
        source = next((key for key, found in of_sources.items() if found.direction == sides), None)
        if source is None:
            asked = " to ".join(sides)
            raise SplitError(f"no source has a {split} split for {asked}: give another corpus with --data.")
        pairs = of_sources[source].pairs
        where = f"{data.sources[source].path}{languages}, {split}"
    elif path.startswith(PREFIX):
        pairs = load_standard_set(path.removeprefix(PREFIX), data)
        stem, where = for_file_name(path), f"{path}{languages}"
    else:
        # A built-in corpus has as many pairs as are asked for; any other corpus is used as a whole.
        limit = data.num_train_pairs if path.startswith("builtin:") else None
        changes: dict[str, Any] = {
            "path": path,
            "name": name,
            "revision": None,
            "num_train_pairs": limit,
            "sources": {},
            # They name the columns of the other direction.
            "columns": data.columns if sides == own else None,
        }
        pairs, is_whole = _load_other(data.model_copy(update=changes), split)
        stem = for_file_name(Path(path).name)
        where = f"{path}, {name}" if name else path
        where += languages
        if not is_whole:
            stem, where = f"{stem}.{split}", f"{where}, {split}"
    if others:
        stem = f"{stem}-{for_file_name('-'.join(sides))}"
    form = TextForm.of(config.cleaning)
    if path is not None:
        for warning in text_warnings({"evaluated": sample_of(pairs, form)}):
            LOG.warning("%s", warning)
    # As in the file of references: some of sacreBLEU's tokenizers join words at a hyphen before a line break.
    sources = list(pairs["src"])
    targets = [on_one_line(text) for text in pairs["tgt"]]
    references = in_form(form, targets)
    num_rewritten = sum(map(ne, references, targets))
    empty = [number for number, reference in enumerate(references, start=1) if shows_nothing(reference)]
    if empty:
        more = f", and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise DataError(
            f"{where}, sentence {empty[0]}{more}: the reference is empty, so nothing can be scored "
            "against it. Add a translation, or remove the pair."
        )
    # As JSON, which separates sentences unambiguously.
    checksum = hashlib.blake2b(json.dumps([sources, references]).encode(), digest_size=6).hexdigest()
    name = f"{stem}-{checksum}"
    where = visible(where)
    return EvaluationSet(name, where, sides, sources, references, form, num_rewritten, own_split, fingerprint)


def _choose(data: DataConfig, src: str | None, tgt: str | None) -> Sides[str]:
    found = []
    for direction in data.directions:
        if src in (None, direction.src) and tgt in (None, direction.tgt):
            found.append(direction)
    if len(found) != 1:
        listed = ", ".join(map(" to ".join, data.directions))
        raise ConfigError(f"this model translates {listed}: choose one by --to and --from, or tgt and src.")
    return found[0]


def _load_other(other: DataConfig, split: Split) -> tuple[datasets.Dataset, bool]:
    """A split of another corpus, or all of a corpus without splits, and whether it is all.

    If ``data.columns`` and ``data.delimiter`` do not fit it, its columns named like the languages are read.
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
        return split is not None and recorded.get(split, fingerprint) != fingerprint
    return False


def warn_of_other_split(run: RunDirectory, test_set: EvaluationSet) -> None:
    """Log a warning if a run held out other pairs than these, and so may have been trained on them."""
    if was_trained_with_another(run, test_set):
        LOG.warning(
            f"{run.path} was trained with another {test_set.own_split} split than this one, and may have "
            "been trained on some of these sentences"
        )


def warn_of_leaks(test_set: EvaluationSet, config: Config, written: Path | None = None) -> None:
    """Log a warning if pairs of a test set are also in the training data, which is read."""
    if test_set.own_split == "train":
        return
    pairs = datasets.Dataset.from_dict({"src": test_set.sources, "tgt": test_set.references})
    check = LeakCheck({"": pairs}, TextForm.of(config.cleaning))
    try:
        check.search(load_corpus(config.data, config.cleaning, written=written).train)
    except (DataError, RunError) as error:
        LOG.warning("pairs that are also in the training data are not counted: %s", error)
    if num_leaked := check.report()[""].pair:
        LOG.warning(
            f"also in the training data: {num_leaked:,} of the {len(test_set.sources):,} pairs of "
            f"{test_set.where} (ignoring case, spacing and punctuation), which raises the scores"
        )


def for_file_name(text: str) -> str:
    """The text with a hyphen for what has a meaning in the names of files."""
    # A file name may have 255 bytes, and a Chinese character takes three.
    short = re.sub(r"[^\w.-]+", "-", text).encode()[:60].decode(errors="ignore")
    return short.strip("-.") or "data"


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
        sources, references, *others = [[line.strip() for line in lines_of(Path(file))] for file in files]
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
