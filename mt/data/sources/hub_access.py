"""Whether the Hugging Face Hub can be reached, at which commit a corpus is, and quiet while it loads."""

import logging
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

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

from mt.errors import DataError

log = logging.getLogger(__name__)

SECONDS_BETWEEN_TRIES = 0.5


@dataclass(frozen=True)
class HubCorpus:
    """Which corpus of the Hub: its id, its configuration, and the revision that the config asks for."""

    hub_id: str
    name: str | None
    revision: str | None

    def __str__(self) -> str:
        return self.hub_id + (f" ({self.name})" if self.name else "")


def newest_commit(corpus: HubCorpus, limit_seconds: float) -> str | None:
    """The commit that the revision stands for; None where there is no answer: the Hub is offline from now on.

    The Hub is asked in a thread of its own, because no time limit of an HTTP client also covers the look-up
    of the host's name.
    """
    answers: list[str | Exception] = []
    thread = threading.Thread(
        target=lambda: answers.append(_ask_for_commit(corpus, time.monotonic() + limit_seconds)), daemon=True
    )
    thread.start()
    thread.join(limit_seconds)
    answer = answers[0] if answers else TimeoutError(f"no answer within {limit_seconds:g} seconds")
    match answer:
        case str():
            return answer
        case GatedRepoError():
            raise gated(corpus)
        case RevisionNotFoundError():
            raise DataError(
                f"data.revision: {corpus.hub_id} has no commit, branch or tag {corpus.revision!r} on the "
                "Hub. Leave it out for the newest."
            )
        case RepositoryNotFoundError():
            raise DataError(
                f"data.path: there is no corpus {corpus.hub_id!r} on the Hub (or it is private and needs "
                f"`hf auth login`), and no file or folder of that name here."
            )
        case HfHubHTTPError() if not _is_busy(answer):
            raise DataError(f"The Hub refuses to give {corpus}: {in_one_line(answer)}.")
    log.warning(
        "%s does not answer (%s): it is treated as offline, and only what is cached can be used.",
        huggingface_hub.constants.ENDPOINT,
        in_one_line(answer),
    )
    huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    return None


def _ask_for_commit(corpus: HubCorpus, deadline: float) -> str | Exception:
    while True:
        try:
            seconds_left = max(deadline - time.monotonic(), 0.1)
            info = huggingface_hub.HfApi().dataset_info(
                corpus.hub_id, revision=corpus.revision, timeout=seconds_left, expand=["sha"]
            )
            return info.sha or ValueError("the answer names no commit")
        except HfHubHTTPError as error:
            if not _is_busy(error) or time.monotonic() + SECONDS_BETWEEN_TRIES > deadline:
                return error
            time.sleep(SECONDS_BETWEEN_TRIES)
        # Those of the HTTP client, too: which one that is, the Hub's package decides.
        except Exception as error:
            return error


def _is_busy(error: HfHubHTTPError) -> bool:
    """Whether the status says "not now" and not what is wrong."""
    return error.response.status_code == 429 or error.response.status_code >= 500


def gated(corpus: HubCorpus) -> DataError:
    """The error for a corpus whose terms have to be accepted first."""
    page = f"{huggingface_hub.constants.ENDPOINT}/datasets/{corpus.hub_id}"
    return DataError(f"{corpus} is gated: accept its terms at {page}, then log in with `hf auth login`.")


def in_one_line(error: BaseException) -> str:
    """The text of an error of a library, as a part of a sentence."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Without the libraries' log, warnings and bars, but for the bar of a download on a terminal."""
    hub_verbosity, verbosity = huggingface_hub.utils.logging.get_verbosity(), datasets.logging.get_verbosity()
    hub_has_bars, has_bars = not are_progress_bars_disabled(), not datasets.are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Not even their errors: those are raised as well, and said then.
        huggingface_hub.utils.logging.set_verbosity(logging.CRITICAL)
        datasets.logging.set_verbosity(logging.CRITICAL)
        datasets.disable_progress_bars()
        if not sys.stderr.isatty():
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
