"""Corpora of the Hugging Face Hub, through `datasets`: a time limit, a pinned commit, the cache."""

import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import datasets
import huggingface_hub
import huggingface_hub.constants
import huggingface_hub.utils
from datasets.exceptions import DatasetNotFoundError, DatasetsError
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

from mt.data.sources.rows import arrow_rows, needed_columns, row_pairs
from mt.data.sources.source import SPLIT_NAMES, Part, Source, Split, did_you_mean, listed
from mt.errors import DataError

log = logging.getLogger(__name__)

COMMIT = re.compile(r"[0-9a-f]{40}")

# Where the Hub keeps corpora that it has converted to parquet: one folder for each configuration.
CONVERTED = "refs/convert/parquet"

SECONDS_BETWEEN_TRIES = 0.5


@dataclass(frozen=True)
class HubCorpus:
    """Which corpus of the Hub: its id, its configuration, and the revision that the config asks for."""

    hub_id: str
    name: str | None
    revision: str | None

    def __str__(self) -> str:
        return self.hub_id + (f" ({self.name})" if self.name else "")


def hub_source(
    hub_id: str, src: str, tgt: str, *, name: str | None, revision: str | None, limit_seconds: float
) -> Source:
    """Download a corpus, or take it from the cache where the Hub does not answer in time.

    Args:
        hub_id: Such as ``bentrevett/multi30k``.
        src: The column of the source.
        tgt: The column of the target.
        name: The configuration; with the revision ``refs/convert/parquet`` the folder there.
        revision: A commit, branch or tag; None takes the newest.
        limit_seconds: How long the Hub may take to answer at all.

    Raises:
        DataError: If there is no such corpus, configuration or revision, it may not be read, is no parallel
            corpus, or can neither be reached nor is cached.
    """
    corpus = HubCorpus(hub_id, name, revision)
    commit = None
    if not huggingface_hub.constants.HF_HUB_OFFLINE:
        commit = _newest_commit(corpus, limit_seconds)
    with _quiet():
        loaded = _load_cached(corpus) if commit is None else _load(corpus, commit)
    splits: dict[Split, list[Part]] = {}
    for split, names in SPLIT_NAMES.items():
        found = next((loaded[candidate] for candidate in names if candidate in loaded), None)
        if found is not None:
            splits[split] = [_part(found, f"the {split} split of {corpus}", src, tgt)]
    if "train" not in splits:
        raise DataError(f"{corpus} has no training split, only {listed(loaded)}: choose another corpus.")
    return Source("hub", splits, revision=_cached_commit(loaded) or commit)


def _part(dataset: datasets.Dataset, where: str, src: str, tgt: str) -> Part:
    needed = dataset.select_columns(needed_columns(dataset.column_names, src, tgt))
    batches = needed.with_format("arrow").iter(batch_size=1000)
    return Part(where, "row", row_pairs(arrow_rows(batches, where), src, tgt, where))


def _newest_commit(corpus: HubCorpus, limit_seconds: float) -> str | None:
    """The commit that the revision stands for; None where there is no answer: the Hub is offline from now on.

    The Hub is asked in a thread of its own, because no time limit of an HTTP client also covers the look-up of
    the host's name.
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
            raise _gated(corpus)
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
    log.warning(
        "%s does not answer (%s): it is treated as offline, and only what is cached can be used.",
        huggingface_hub.constants.ENDPOINT,
        _in_one_line(answer),
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
            # 429 and the 5xx say "not now"; the others are the answer.
            is_busy = error.response.status_code == 429 or error.response.status_code >= 500
            if not is_busy or time.monotonic() + SECONDS_BETWEEN_TRIES > deadline:
                return error
            time.sleep(SECONDS_BETWEEN_TRIES)
        except (
            Exception
        ) as error:  # the HTTP client's own errors: which client it is, the Hub's package decides
            return error


def _load(corpus: HubCorpus, commit: str) -> datasets.DatasetDict:
    # The name of a converted corpus is its folder: as a configuration `datasets` does not know it there.
    in_folder = corpus.revision == CONVERTED
    try:
        loaded = datasets.load_dataset(
            corpus.hub_id,
            None if in_folder else corpus.name,
            data_dir=corpus.name if in_folder else None,
            revision=commit,
        )
    except DatasetNotFoundError as error:
        raise (_gated(corpus) if "gated" in str(error) else _unusable(corpus, error)) from None
    except (DatasetsError, OSError, ValueError, RuntimeError, StopIteration) as error:
        if "scripts are no longer supported" in str(error):
            raise _is_script(corpus) from None
        raise (_wrong_name(corpus, commit) or _unusable(corpus, error)) from None
    # Where a download fails, `datasets` takes any commit that is cached, and says so only in its log.
    cached = _cached_commit(loaded)
    if cached not in (None, commit):
        raise DataError(
            f"Downloading {corpus} at commit {commit} failed, and only commit {cached} is cached: "
            f"try again, or set data.revision={cached} to use that one."
        )
    return loaded


def _load_cached(corpus: HubCorpus) -> datasets.DatasetDict:
    in_folder = corpus.revision == CONVERTED
    try:
        loaded = datasets.load_dataset(
            corpus.hub_id,
            None if in_folder else corpus.name,
            data_dir=corpus.name if in_folder else None,
        )
    except ValueError as error:
        raise DataError(
            f"The Hub cannot be reached, and {corpus} is not cached as data.name asks: {_in_one_line(error)}."
        ) from None
    except (DatasetsError, OSError, RuntimeError):
        raise DataError(
            f"{corpus} is not cached, and the Hub ({huggingface_hub.constants.ENDPOINT}) cannot be reached. "
            f"Check the network and run this once with it, or let data.path be a folder on this machine or "
            f"builtin:primer."
        ) from None
    cached = _cached_commit(loaded)
    wanted = corpus.revision
    if wanted and COMMIT.fullmatch(wanted) and wanted != cached:
        raise DataError(
            f"data.revision asks for commit {wanted} of {corpus}, but the Hub cannot be reached and the "
            f"newest that is cached is {cached}: check the network, or ask for that one."
        )
    log.warning("Taking %s from the cache, at commit %s.", corpus, cached)
    return loaded


def _cached_commit(loaded: datasets.DatasetDict) -> str | None:
    """The commit by which the cache files the corpus: ``<corpus>/<configuration>/<version>/<commit>/..``."""
    for split in loaded.values():
        for file in split.cache_files:
            commit = Path(file["filename"]).parent.name
            if COMMIT.fullmatch(commit):
                return commit
    return None


def _gated(corpus: HubCorpus) -> DataError:
    page = f"{huggingface_hub.constants.ENDPOINT}/datasets/{corpus.hub_id}"
    return DataError(f"{corpus} is gated: accept its terms at {page}, then log in with `hf auth login`.")


def _unusable(corpus: HubCorpus, error: Exception) -> DataError:
    return DataError(
        f"{corpus} was found on the Hub but `datasets` cannot load it: {_in_one_line(error)}. "
        f"Choose another corpus, or download its files and let data.path be their folder."
    )


def _is_script(corpus: HubCorpus) -> DataError:
    """Names the way out, and the folders of the converted corpus where the Hub lists them."""
    try:
        entries = huggingface_hub.HfApi().list_repo_tree(
            corpus.hub_id, revision=CONVERTED, repo_type="dataset"
        )
        folders = [entry.path for entry in entries if isinstance(entry, huggingface_hub.hf_api.RepoFolder)]
    except HfHubHTTPError:
        folders = []
    there = f" There are {listed(folders)}." if folders else ""
    return DataError(
        f"{corpus} is a loading script, and scripts are not run. Take the Hub's conversion of it: set "
        f"data.revision={CONVERTED} and data.name to the folder there that has your languages.{there}"
    )


def _wrong_name(corpus: HubCorpus, commit: str) -> DataError | None:
    """What to say where ``data.name`` is the fault; None where it is not."""
    if corpus.revision == CONVERTED:
        return None
    try:
        names = datasets.get_dataset_config_names(corpus.hub_id, revision=commit)
    except (DatasetsError, OSError, ValueError, RuntimeError):
        return None
    if corpus.name is None and len(names) > 1:
        return DataError(f"{corpus} has several configurations: set data.name to one of {listed(names)}.")
    if corpus.name is not None and corpus.name not in names:
        return DataError(
            f"data.name: {corpus.hub_id} has no configuration {corpus.name!r}, only {listed(names)}."
            f"{did_you_mean(corpus.name, names)}"
        )
    return None


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' warnings and bars, but for that of a download on a terminal."""
    hub_verbosity, verbosity = huggingface_hub.utils.logging.get_verbosity(), datasets.logging.get_verbosity()
    huggingface_hub.utils.logging.set_verbosity(logging.ERROR)
    datasets.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        yield
    finally:
        huggingface_hub.utils.logging.set_verbosity(hub_verbosity)
        datasets.logging.set_verbosity(verbosity)
        datasets.enable_progress_bars()
        enable_progress_bars()
