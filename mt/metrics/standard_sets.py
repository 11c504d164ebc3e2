"""Test sets of sacreBLEU, by name, such as wmt14 or wmt20/dev; it downloads them once."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sacrebleu.dataset import DATASETS

from mt.errors import DataError

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
