"""Corpora from the Hugging Face Hub, through `datasets`: pinned to a commit, or from the cache if offline.

Each call into the libraries has its own ``try`` that catches any exception, because they also raise those of
Arrow and of their HTTP client.
"""

import logging
import re
from pathlib import Path

import datasets
import huggingface_hub
import huggingface_hub.constants
from datasets.exceptions import DatasetNotFoundError
from huggingface_hub.errors import LocalEntryNotFoundError

from mt.data.sources.hub_access import HubRepository, error_text, gated, newest_commit, quiet
from mt.data.sources.source import SPLIT_NAMES, Part, Source, Split, did_you_mean, listed
from mt.data.sources.tables import Columns, arrow_rows, needed_columns, row_pairs
from mt.errors import DataError

LOG = logging.getLogger(__name__)

COMMIT = re.compile(r"[0-9a-f]{40}")

# Where the Hub keeps corpora that it has converted to parquet: one folder for each configuration.
CONVERTED = "refs/convert/parquet"


def hub_source(
    hub_id: str, columns: Columns, *, name: str | None, revision: str | None, limit_seconds: float
) -> Source:
    """Download a corpus, or take it from the cache if the Hub does not answer in time.

    Args:
        hub_id: Such as ``bentrevett/multi30k``.
        columns: The columns of source and target.
        name: The configuration; with the revision ``refs/convert/parquet``, the folder there.
        revision: A commit, branch or tag; None for the newest commit.
        limit_seconds: How long to wait for the Hub's first answer.
    """
    corpus = HubRepository("dataset", hub_id, name, revision)
    commit = None
    if not huggingface_hub.constants.HF_HUB_OFFLINE:
        commit = newest_commit(corpus, limit_seconds)
    with quiet():
        if revision == CONVERTED:
            loaded, commit = _load_converted(corpus)
        else:
            loaded = _load_cached(corpus) if commit is None else _load(corpus, commit)
    commit = commit or _cached_commit(loaded)
    splits: dict[Split, list[Part]] = {}
    for split, names in SPLIT_NAMES.items():
        found = next((loaded[candidate] for candidate in names if candidate in loaded), None)
        if found is not None:
            splits[split] = [_part(found, f"the {split} split of {corpus}", columns, commit)]
    if "train" not in splits:
        raise DataError(f"{corpus} has no training split, only {listed(loaded)}: choose another corpus.")
    return Source("hub", splits, revision=commit)


def _part(dataset: datasets.Dataset, where: str, columns: Columns, commit: str | None) -> Part:
    needed = dataset.select_columns(needed_columns(dataset.column_names, columns, where))
    batches = needed.with_format("arrow").iter(batch_size=1000)
    return Part(where, "row", row_pairs(arrow_rows(batches, where), columns, where), lambda: commit)


def _load(corpus: HubRepository, commit: str) -> datasets.DatasetDict:
    try:
        loaded = datasets.load_dataset(corpus.hub_id, corpus.name, revision=commit)
    except DatasetNotFoundError as error:
        raise (gated(corpus) if "gated" in str(error) else _unusable(corpus, error)) from None
    except Exception as error:
        raise (
            _is_script(corpus, commit) or _wrong_name(corpus, commit) or _unusable(corpus, error)
        ) from None
    # If a download fails, `datasets` uses any commit that is cached, and says so only in its log.
    cached = _cached_commit(loaded)
    if cached not in (None, commit):
        raise DataError(
            f"Downloading {corpus} at commit {commit} failed, and only commit {cached} is cached: "
            f"try again, or set data.revision={cached} to use that one."
        )
    return loaded


def _load_cached(corpus: HubRepository) -> datasets.DatasetDict:
    try:
        loaded = datasets.load_dataset(corpus.hub_id, corpus.name)
    except ValueError as error:
        raise DataError(
            f"The Hub cannot be reached, and {corpus} is not cached for this data.name: {error_text(error)}."
        ) from None
    except Exception:
        raise _not_cached(corpus) from None
    cached = _cached_commit(loaded)
    wanted = corpus.revision
    if wanted and COMMIT.fullmatch(wanted) and wanted != cached:
        raise DataError(
            f"data.revision requests commit {wanted} of {corpus}, but the Hub cannot be reached and the "
            f"newest cached commit is {cached}: check the network, or request that one."
        )
    doubt = (
        "" if wanted in (None, cached) else f" Whether that is data.revision={wanted}, only the Hub knows."
    )
    LOG.warning("Using %s from the cache, at commit %s.%s", corpus, cached, doubt)
    return loaded


def _load_converted(corpus: HubRepository) -> tuple[datasets.DatasetDict, str]:
    """Load the folder ``data.name`` of the converted corpus, and return its commit; offline, from the cache.

    The folder is downloaded first and then loaded, because `datasets` does not find it again in its cache.
    """
    try:
        snapshot = huggingface_hub.snapshot_download(
            corpus.hub_id, repo_type="dataset", revision=CONVERTED, allow_patterns=f"{corpus.name}/**"
        )
    except LocalEntryNotFoundError:
        raise _not_cached(corpus) from None
    except Exception as error:
        raise _unusable(corpus, error) from None
    folder = Path(snapshot) / (corpus.name or "")
    if corpus.name is None or not folder.is_dir():
        if huggingface_hub.constants.HF_HUB_OFFLINE:
            raise _not_cached(corpus)
        raise DataError(
            f"data.name: {corpus.hub_id} has no folder {corpus.name!r} at {CONVERTED}."
            f"{_list_converted(corpus)}"
        )
    try:
        return datasets.load_dataset(str(folder)), folder.parent.name
    except Exception as error:
        raise _unusable(corpus, error) from None


def _cached_commit(loaded: datasets.DatasetDict) -> str | None:
    """The commit by which the cache files the corpus: ``<corpus>/<configuration>/<version>/<commit>/..``."""
    for split in loaded.values():
        for file in split.cache_files:
            commit = Path(file["filename"]).parent.name
            if COMMIT.fullmatch(commit):
                return commit
    return None


def _unusable(corpus: HubRepository, error: Exception) -> DataError:
    return DataError(
        f"{corpus} is on the Hub but `datasets` cannot load it: {error_text(error.__cause__ or error)}. "
        f"Try again, choose another corpus, or download its files and set data.path to their folder."
    )


def _not_cached(corpus: HubRepository) -> DataError:
    return DataError(
        f"{corpus} is not cached, the Hub ({huggingface_hub.constants.ENDPOINT}) cannot be reached, and no "
        f"file or folder here has that name. Check the network and run this once online, or set data.path "
        f"to a folder on this machine or to builtin:primer."
    )


def _is_script(corpus: HubRepository, commit: str) -> DataError | None:
    """The error for a corpus that is a loading script, which `datasets` does not run; None for others."""
    script = corpus.hub_id.split("/")[1] + ".py"
    try:
        if not huggingface_hub.file_exists(corpus.hub_id, script, repo_type="dataset", revision=commit):
            return None
    except Exception:
        return None
    return DataError(
        f"{corpus} is a loading script, and scripts are not run. Use the Hub's conversion of it: set "
        f"data.revision={CONVERTED} and data.name to the folder there that has your languages."
        f"{_list_converted(corpus)}"
    )


def _list_converted(corpus: HubRepository) -> str:
    """A sentence with the folders of the converted corpus; empty if the Hub does not list them."""
    try:
        entries = huggingface_hub.list_repo_tree(corpus.hub_id, revision=CONVERTED, repo_type="dataset")
        folders = [entry.path for entry in entries if isinstance(entry, huggingface_hub.RepoFolder)]
    except Exception:
        return ""
    return f" The folders are {listed(folders)}."


def _wrong_name(corpus: HubRepository, commit: str) -> DataError | None:
    """The error for a wrong ``data.name``; None if it is not wrong."""
    try:
        names = datasets.get_dataset_config_names(corpus.hub_id, revision=commit)
    except Exception:
        return None
    if corpus.name is None and len(names) > 1:
        return DataError(f"{corpus} has several configurations: set data.name to one of {listed(names)}.")
    if corpus.name is not None and corpus.name not in names:
        return DataError(
            f"data.name: {corpus.hub_id} has no configuration {corpus.name!r}, only {listed(names)}."
            f"{did_you_mean(corpus.name, names)}"
        )
    return None
