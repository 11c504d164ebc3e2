"""Test sets: a split of the run's corpus, another corpus, or a standard test set of sacreBLEU."""

import hashlib
import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from sacrebleu.dataset import DATASETS

from mt.config.config import Config
from mt.data.corpus import load_split, load_undivided
from mt.data.sources.find import files_on_disk
from mt.data.sources.source import Split
from mt.display import visible
from mt.errors import ConfigError, DataError
from mt.evaluation.scores import refuse_empty
from mt.regular_files import read_text

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
) -> EvaluationSet:
    """Load a test set.

    Args:
        config: The run, whose own corpus names the languages.
        split: train, validation or test; ignored for a standard test set and for files without splits.
        path: Another corpus in the same languages, or ``sacrebleu:`` and the name of a standard test set;
            files without splits are used as a whole.
        name: The configuration of that corpus, if it is a Hub corpus with several.
        leave_out_empty: Leave out pairs with an empty reference, instead of refusing them.

    Raises:
        ConfigError: If there is a name without a corpus, or all of the run's own files would be used.
        DataError: If the corpus cannot be read, or a reference is empty.
        ValueError: If there is no split of that name.
    """
    if split not in (splits := get_args(Split)):
        raise ValueError(f"split must be {', '.join(splits)}, not {split!r}")
    data = config.data
    if name is not None and (path is None or path.startswith(PREFIX)):
        raise ConfigError(
            f"{name!r} is given as the configuration of a Hub corpus, but no corpus is: give its path "
            "as well, or leave the name out."
        )
    if path is None:
        pairs = load_split(data, split, config.cleaning)
        stem: str = split
        where = f"{data.path}, {split}"
        sources, references = list(pairs["src"]), list(pairs["tgt"])
    elif path.startswith(PREFIX):
        set_name = path.removeprefix(PREFIX)
        sources, references = load_standard_set(
            set_name, data.src, data.tgt, timeout_seconds=data.hub_timeout_seconds
        )
        stem, where = _for_file_name(path), path
    else:
        # A built-in corpus is generated with a number of pairs; any other corpus is used as a whole.
        limit = data.num_train_pairs if path.startswith("builtin:") else None
        changes = {"path": path, "name": name, "revision": None, "num_train_pairs": limit, "mix": None}
        other = data.model_copy(update=changes)
        stem, where = _for_file_name(Path(path).name), ", ".join([path, *([name] if name else [])])
        whole = load_undivided(other)
        if whole is not None:
            if files_on_disk(other, ["train"]) & files_on_disk(data, ["train"]):
                raise ConfigError(
                    f"this run was trained on {path}, and all of it would be scored, not only what was held "
                    "out. To score a split of the run, name no other corpus."
                )
            pairs = whole
        else:
            pairs = load_split(other, split)
            stem, where = f"{stem}.{split}", f"{where}, {split}"
        sources, references = list(pairs["src"]), list(pairs["tgt"])
    # As in the file of references: some of sacreBLEU's tokenizers join words at a hyphen before a line break.
    references = [reference.replace("\n", " ") for reference in references]
    if leave_out_empty:
        kept = [i for i, reference in enumerate(references) if reference.strip()]
        sources, references = [sources[i] for i in kept], [references[i] for i in kept]
    refuse_empty(references, where)
    return EvaluationSet(f"{stem}-{checksum_of(sources, references)}", visible(where), sources, references)


def read_lines(file: Path) -> list[str]:
    """Read the lines of a UTF-8 file; lines end at line feeds only.

    Raises:
        DataError: If it cannot be read, or is not UTF-8.
    """
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
    """Load the sources and references that ``sacrebleu -t NAME -l SRC-TGT`` scores against.

    Raises:
        DataError: If there is no such set, it has other languages or several references for a sentence, or
            it cannot be downloaded.
    """
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


@contextmanager
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
