"""Asking the Hugging Face Hub for the commit of a repository, and keeping its libraries quiet."""

import logging
import re
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import datasets
import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.utils
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

from mt.display import are_shown
from mt.errors import DataError

LOG = logging.getLogger(__name__)

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")

SECONDS_BETWEEN_TRIES = 0.5

NOUNS = {"dataset": "corpus", "model": "model"}
# The config options that contain the id of a repository.
OPTIONS = {"dataset": "data.path", "model": "tokenizer.path"}


@dataclass(frozen=True)
class HubRepository:
    """A repository on the Hub, as named in the config.

    Attributes:
        repo_type: A corpus, or a model of which only the tokenizer is used.
        hub_id: Such as ``bentrevett/multi30k``.
        name: The configuration of a corpus.
        revision: A commit, branch or tag; None is the newest.
    """

    repo_type: Literal["dataset", "model"]
    hub_id: str
    name: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        return self.hub_id + (f" ({self.name})" if self.name else "")


def newest_commit(repository: HubRepository, limit_seconds: float) -> str | None:
    """The commit of the revision; None if there is no answer: the Hub is treated as offline from then on.

    The request runs in a separate thread, because the time limits of HTTP clients do not cover DNS look-ups.
    """
    answers: list[str | Exception] = []
    deadline = time.monotonic() + limit_seconds
    thread = threading.Thread(
        target=lambda: answers.append(_ask_for_commit(repository, deadline)), daemon=True
    )
    thread.start()
    thread.join(limit_seconds)
    answer = answers[0] if answers else TimeoutError(f"no answer within {limit_seconds:g} seconds")
    option = OPTIONS[repository.repo_type]
    match answer:
        case str():
            return answer
        case GatedRepoError():
            raise gated(repository)
        case RevisionNotFoundError():
            raise DataError(
                f"data.revision: {repository.hub_id} has no commit, branch or tag {repository.revision!r} on "
                "the Hub. Leave it out for the newest."
            )
        case RepositoryNotFoundError():
            raise DataError(
                f"{option}: there is no {NOUNS[repository.repo_type]} {repository.hub_id!r} on the Hub (or "
                "it is private and needs `hf auth login`), and no file or folder of that name here."
            )
        case HfHubHTTPError() if not _is_busy(answer):
            raise DataError(f"{option}: the Hub refuses access to {repository}: {error_text(answer)}.")
    LOG.warning(
        "%s does not answer (%s): it is treated as offline, and only what is cached can be used.",
        huggingface_hub.constants.ENDPOINT,
        error_text(answer),
    )
    huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    return None


def _ask_for_commit(repository: HubRepository, deadline: float) -> str | Exception:
    while True:
        try:
            seconds_left = max(deadline - time.monotonic(), 0.1)
            info = huggingface_hub.HfApi().repo_info(
                repository.hub_id,
                repo_type=repository.repo_type,
                revision=repository.revision,
                timeout=seconds_left,
                expand=["sha"],  # type: ignore[arg-type]  # Its annotation lacks the list.
            )
            return info.sha or ValueError("the answer names no commit")
        except HfHubHTTPError as error:
            if not _is_busy(error) or time.monotonic() + SECONDS_BETWEEN_TRIES > deadline:
                return error
            time.sleep(SECONDS_BETWEEN_TRIES)
        # Including those of the HTTP client, which depends on the version of the Hub's package.
        except Exception as error:
            return error


def _is_busy(error: HfHubHTTPError) -> bool:
    """Whether the status only says that the Hub is busy."""
    return error.response.status_code == 429 or error.response.status_code >= 500


def gated(repository: HubRepository) -> DataError:
    """The error for a repository whose terms must be accepted first."""
    folder = "datasets/" if repository.repo_type == "dataset" else ""
    page = f"{huggingface_hub.constants.ENDPOINT}/{folder}{repository.hub_id}"
    return DataError(
        f"{OPTIONS[repository.repo_type]}: {repository} is gated: accept its terms at {page}, then log in "
        "with `hf auth login`."
    )


def error_text(error: BaseException) -> str:
    """The text of a library's error, as part of a sentence."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the libraries' logs, warnings and progress bars, except a download's bar if bars are shown."""
    hub_verbosity, verbosity = huggingface_hub.utils.logging.get_verbosity(), datasets.logging.get_verbosity()
    hub_has_bars, has_bars = not are_progress_bars_disabled(), not datasets.are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Not even their error logs, because errors are raised as well.
        huggingface_hub.utils.logging.set_verbosity(logging.CRITICAL)
        datasets.logging.set_verbosity(logging.CRITICAL)
        datasets.disable_progress_bars()
        if not (are_shown() and sys.stderr.isatty()):
            disable_progress_bars()
        try:
            yield
        finally:
            huggingface_hub.utils.logging.set_verbosity(hub_verbosity)
            datasets.logging.set_verbosity(verbosity)
            if hub_has_bars:
                enable_progress_bars()
            if has_bars:
                datasets.enable_progress_bars()
