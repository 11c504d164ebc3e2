"""Test sets: a split of the run's corpus, another corpus, or a standard test set of sacreBLEU."""

import contextlib
import hashlib
import json
import logging
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import datasets
from sacrebleu.dataset import DATASETS

from mt.config.config import Config
from mt.config.data import DataConfig, UnicodeForm
from mt.data.cleaning.leaks import LeakCheck
from mt.data.corpus import load_split, load_undivided
from mt.data.corpus_report import recorded_fingerprints
from mt.data.pair_table import PairTable
from mt.data.sources.find import LEGACY_NAMES, files_on_disk, find_source, mixed_sources
from mt.data.sources.source import Split
from mt.display import visible
from mt.errors import ConfigError, DataError
from mt.evaluation.scores import refuse_empty
from mt.files import read_text
from mt.run_directory import RunDirectory

LOG = logging.getLogger(__name__)

# Ten million lines take about one billion bytes.
_MAX_BYTES = 2**33


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences to translate, with one reference each."""

    name: str
    """The split or the data, and a checksum of the sentences, for file names."""
    where: str
    """The corpus and the split, for messages."""
    sources: list[str]
    references: list[str]
    """None of them is empty, and none has a line break."""
    own_split: Split | None = None
    """The split of the run's own corpus; None for another corpus."""
    fingerprint: str | None = None
    """That of the run's own validation or test split, comparable with its ``corpus.json``."""

    @property
    def checksum(self) -> str:
        """Twelve hexadecimal digits that identify these sources and references."""
        return checksum_of(self.sources, self.references)


def checksum_of(sources: Sequence[str], references: Sequence[str]) -> str:
    """Twelve hexadecimal digits that identify these pairs."""
    # As JSON, which separates sentences unambiguously.
    pairs = json.dumps([list(sources), list(references)])
    return hashlib.blake2b(pairs.encode(), digest_size=6).hexdigest()


def load_evaluation_set(
    config: Config,
    split: Split,
    *,
    path: str | None = None,
    name: str | None = None,
    leave_out_empty: bool = False,
    others: Mapping[str, DataConfig] | None = None,
) -> EvaluationSet:
    """Load a test set.

    Args:
        config: The run, whose own corpus names the languages.
        split: train, validation or test; ignored for a standard test set and for files without splits.
        path: Another corpus in the same languages, or ``sacrebleu:`` and the name of a standard test set;
            files without splits are used as a whole.
        name: The configuration of that corpus, if it is a Hub corpus with several.
        leave_out_empty: Leave out pairs with an empty reference, instead of refusing them.
        others: The data that other models to be evaluated were trained on, by the name of the run.
    """
    if split not in (splits := get_args(Split)):
        raise ValueError(f"split must be {', '.join(splits)}, not {split!r}")
    data = config.data
    if name is not None and (path is None or path.startswith(PREFIX)):
        raise ConfigError(
            f"{name!r} is given as the configuration of a Hub corpus, but no corpus is: give its path "
            "as well, or leave the name out."
        )
    own_split: Split | None = None
    fingerprint: str | None = None
    stem: str
    if path is None:
        pairs = load_split(data, split, config.cleaning)
        stem, where, own_split = split, f"{data.path}, {split}", split
        sources, references = list(pairs["src"]), list(pairs["tgt"])
        if split != "train":
            fingerprint = _table(sources, references).fingerprint
    elif path.startswith(PREFIX):
        set_name = path.removeprefix(PREFIX)
        sources, references = load_standard_set(
            set_name, data.src, data.tgt, timeout_seconds=data.hub_timeout_seconds
        )
        stem, where = _for_file_name(path), path
    else:
        # A built-in corpus has as many pairs as are asked for; any other corpus is used as a whole.
        limit = data.num_train_pairs if path.startswith("builtin:") else None
        changes = {"path": path, "name": name, "revision": None, "num_train_pairs": limit, "mix": None}
        other = data.model_copy(update=changes)
        stem, where = _for_file_name(Path(path).name), ", ".join([path, *([name] if name else [])])
        pairs, is_whole = _load_other(other, split, {**(others or {}), "this run": data})
        if not is_whole:
            stem, where = f"{stem}.{split}", f"{where}, {split}"
        sources, references = list(pairs["src"]), list(pairs["tgt"])
    # As in the file of references: some of sacreBLEU's tokenizers join words at a hyphen before a line break.
    references = [reference.replace("\n", " ") for reference in references]
    if leave_out_empty:
        kept = [i for i, reference in enumerate(references) if reference.strip()]
        sources, references = [sources[i] for i in kept], [references[i] for i in kept]
    refuse_empty(references, where)
    name = f"{stem}-{checksum_of(sources, references)}"
    return EvaluationSet(name, visible(where), sources, references, own_split, fingerprint)


def _load_other(
    other: DataConfig, split: Split, learnt: Mapping[str, DataConfig]
) -> tuple[datasets.Dataset, bool]:
    """A split of another corpus, or all of a corpus without splits, and whether it is all.

    If it cannot be read with ``data.columns`` and ``data.delimiter``, which are those of the run's corpus,
    the columns that are named like the languages are read.
    """
    try:
        return _load_with_columns(other, split, learnt)
    except DataError:
        if other.columns is not None or other.delimiter != "auto":
            named = other.model_copy(update={"columns": None, "delimiter": "auto"})
            with contextlib.suppress(DataError):
                found = _load_with_columns(named, split, learnt)
                LOG.warning(
                    "%s cannot be read with the run's data.columns and data.delimiter: its columns %s and %s "
                    "are read instead",
                    other.path,
                    other.src,
                    other.tgt,
                )
                return found
        raise


def _load_with_columns(
    other: DataConfig, split: Split, learnt: Mapping[str, DataConfig]
) -> tuple[datasets.Dataset, bool]:
    whole = load_undivided(other)
    for run, data in learnt.items():
        # A split that the corpus lacks would be carved from its training pairs.
        if _have_common_training_pairs(data, other) and (
            whole is not None or split not in find_source(other).splits
        ):
            raise ConfigError(
                f"{run} was trained on {other.path}, and may have learnt what would be scored. To score a "
                "split of a run's own corpus, name no other corpus."
            )
    return (load_split(other, split), False) if whole is None else (whole, True)


def _have_common_training_pairs(data: DataConfig, other: DataConfig) -> bool:
    # A corpus on the Hub has no files here.
    ids = {(LEGACY_NAMES.get(each.path, each.path), each.name) for each, _ in mixed_sources(data)}
    is_source = (LEGACY_NAMES.get(other.path, other.path), other.name) in ids
    return is_source or bool(files_on_disk(other, ["train"]) & files_on_disk(data, ["train"]))


def _table(sources: Sequence[str], references: Sequence[str]) -> PairTable:
    table = PairTable()
    for pair in zip(sources, references, strict=True):
        table.append(*pair)
    return table


def was_trained_with_another(run: RunDirectory, split: Split, fingerprint: str) -> bool:
    """Whether ``corpus.json`` says that a split of the run's corpus had other pairs; False if unknown."""
    with contextlib.suppress(OSError, ValueError):
        return recorded_fingerprints(run.read_corpus_report()).get(split, fingerprint) != fingerprint
    return False


def warn_of_other_split(run: RunDirectory, test_set: EvaluationSet) -> None:
    """Log a warning if a run held out other pairs than these, and so may have been trained on them.

    Nothing is logged about a training split, nor about a test set from another corpus.
    """
    split, fingerprint = test_set.own_split, test_set.fingerprint
    if split and fingerprint and was_trained_with_another(run, split, fingerprint):
        LOG.warning(
            "%s was trained with another %s split than this one, and may have been trained on some of these "
            "sentences",
            run.path,
            split,
        )


def warn_of_leaks(test_set: EvaluationSet, train: datasets.Dataset, unicode_form: UnicodeForm) -> None:
    """Log a warning if pairs of a test set are also in the training data, which has this Unicode form.

    Nothing is logged about the training split itself.
    """
    if test_set.own_split == "train":
        return
    check = LeakCheck({"": _table(test_set.sources, test_set.references).to_dataset()}, unicode_form)
    check.search(train)
    if num_leaked := check.report()[""].pair.normalised:
        LOG.warning(
            "also in the training data: %s of the %s pairs of %s (ignoring case, spacing and punctuation), "
            "which raises the scores",
            f"{num_leaked:,}",
            f"{len(test_set.sources):,}",
            test_set.where,
        )


def read_lines(file: Path) -> list[str]:
    """Read the lines of a UTF-8 file; lines end at line feeds only."""
    try:
        text = read_text(file, max_bytes=_MAX_BYTES)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from error
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _for_file_name(text: str) -> str:
    # A file name may have 255 bytes, and a Chinese character takes three.
    short = re.sub(r"[^\w.-]+", "-", text).encode()[:60].decode(errors="ignore")
    return short.strip("-.") or "data"


PREFIX = "sacrebleu:"


def load_standard_set(
    name: str, src: str, tgt: str, *, timeout_seconds: float
) -> tuple[list[str], list[str]]:
    """Load the sources and references that ``sacrebleu -t NAME -l SRC-TGT`` scores against."""
    if name not in DATASETS:
        raise DataError(
            f"sacreBLEU has no test set {name!r}: `sacrebleu --list` lists its test sets, such as wmt14."
        )
    dataset: Any = DATASETS[name]
    languages = f"{src}-{tgt}"
    if languages not in dataset.langpairs:
        raise DataError(
            f"sacreBLEU's {name} has no {languages}, only {', '.join(sorted(dataset.langpairs))}."
        )
    with _explain_failure(name, dataset._outdir, timeout_seconds):
        source_file = dataset.get_source_file(languages)
        reference_file, *others = dataset.get_reference_files(languages)
        sources, references = _stripped_lines(source_file), _stripped_lines(reference_file)
        if len(sources) != len(references):
            raise EOFError
    if others:
        raise DataError(
            f"sacreBLEU's {name} has several references for each sentence of {languages}, but mt scores "
            "against one: translate its source as a file, and score the translations with sacrebleu."
        )
    return sources, references


def _stripped_lines(file: str) -> list[str]:
    # As sacreBLEU reads it: a carriage return does not end a line.
    with Path(file).open(encoding="utf-8", newline="\n") as lines:
        return [line.strip() for line in lines]


@contextlib.contextmanager
def _explain_failure(name: str, folder: str, timeout_seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    # sacreBLEU would wait forever for a server that does not answer.
    socket.setdefaulttimeout(timeout_seconds)
    try:
        yield
    # Servers, archives and locks fail in many ways; sacreBLEU reports a wrong checksum by SystemExit.
    except (Exception, SystemExit) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is damaged"
        # The next time, sacreBLEU would use an unfinished download as if it were complete.
        raise DataError(
            f"sacreBLEU's test set {name} is missing or incomplete in {folder}, and could not be downloaded: "
            f"{reason}. Remove that folder and try again online, or copy its files from a machine that has "
            "them."
        ) from error
    finally:
        socket.setdefaulttimeout(before)
