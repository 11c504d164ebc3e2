"""What a system is judged on: a split of its corpus, another corpus, or a standard test set."""

import hashlib
import json
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sacrebleu.dataset import DATASETS

from mt.config.data import DataConfig
from mt.data.corpus import load_split
from mt.data.sources.source import Split
from mt.errors import ConfigError, DataError
from mt.evaluation.scores import refuse_empty
from mt.regular_files import read_text

# Ten million lines take about one billion.
_MAX_BYTES = 2**33


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences with one reference each, none of them empty."""

    name: str
    """For file names: the split or the data, and a checksum of the sentences."""
    where: str
    """For people."""
    sources: list[str]
    references: list[str]

    @property
    def checksum(self) -> str:
        """Twelve hexadecimal digits that tell these sources and references from all others."""
        return checksum_of(self.sources, self.references)


def checksum_of(sources: Sequence[str], references: Sequence[str]) -> str:
    """Twelve hexadecimal digits that tell these pairs from all others."""
    # As JSON, for any text of one sentence may be that of two others joined.
    pairs = json.dumps([list(sources), list(references)])
    return hashlib.blake2b(pairs.encode(), digest_size=6).hexdigest()


def load_evaluation_set(
    data: DataConfig, split: Split, *, path: str | None = None, name: str | None = None
) -> EvaluationSet:
    """Read the sentences to be judged on.

    Args:
        data: The run's own corpus, which names the languages.
        split: train, validation or test; of a standard test set there is only one.
        path: Another corpus, in the same languages, or ``sacrebleu:`` and the name of a standard test set; a
            single file is taken whole.
        name: The configuration of that corpus, where it is one of the Hub that has several.

    Raises:
        ConfigError: If there is a name without a path.
        DataError: If the corpus cannot be read, or a reference is empty.
    """
    if name is not None and (path is None or path.startswith(PREFIX)):
        raise ConfigError(
            "--name says which configuration of a Hub corpus to take: name the corpus as well, with --data."
        )
    if path is None:
        pairs = load_split(data, split)
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
        # How many pairs a built-in corpus has is part of what it is; of another corpus all are judged.
        limit = data.num_train_pairs if path.startswith("builtin:") else None
        other = data.model_copy(
            update={"path": path, "name": name, "revision": None, "num_train_pairs": limit}
        )
        pairs = load_split(other, split, undivided=True)
        sources, references = list(pairs["src"]), list(pairs["tgt"])
        stem = f"{_for_file_name(Path(path).name)}.{split}"
        where = ", ".join([path, *([name] if name else []), split])
    refuse_empty(references, where)
    return EvaluationSet(f"{stem}-{checksum_of(sources, references)}", where, sources, references)


def read_lines(file: Path) -> list[str]:
    """The lines of a UTF-8 file; a line ends at a line feed and nowhere else.

    Raises:
        DataError: If it cannot be read, or is not UTF-8.
    """
    try:
        text = read_text(file, max_bytes=_MAX_BYTES)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from error
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def _for_file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)[:60].strip("-.") or "data"


PREFIX = "sacrebleu:"


def load_standard_set(
    name: str, src: str, tgt: str, *, timeout_seconds: float
) -> tuple[list[str], list[str]]:
    """Sources and references of a test set, as ``sacrebleu -t NAME -l SRC-TGT`` scores against them.

    Raises:
        DataError: If there is no such set, it is not of these languages, has several references for a
            sentence, or cannot be downloaded.
    """
    if name not in DATASETS:
        raise DataError(
            f"sacreBLEU knows no test set {name!r}: `sacrebleu --list` names those it knows, such as wmt14."
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
            f"sacreBLEU's {name} has several references for a sentence of {languages}, and mt scores against "
            "one: translate its source with mt translate, and score with sacrebleu."
        )
    return sources, references


def _stripped_lines(file: str) -> list[str]:
    with Path(file).open(encoding="utf-8") as lines:
        return [line.strip() for line in lines]


@contextmanager
def _explain_failure(name: str, folder: str, timeout_seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    # sacreBLEU would wait forever for a server that does not answer.
    socket.setdefaulttimeout(timeout_seconds)
    try:
        yield
    # Servers, archives and locks fail in many ways; SystemExit is a wrong checksum, on which sacreBLEU has
    # printed more to stderr.
    except (Exception, SystemExit) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is damaged"
        # sacreBLEU would take an unfinished download for a whole one the next time.
        raise DataError(
            f"sacreBLEU's test set {name} is not in {folder} as it should be, and could not be downloaded: "
            f"{reason}. Remove that folder and try again with a network, or bring its files from a machine "
            "that has them."
        ) from error
    finally:
        socket.setdefaulttimeout(before)
