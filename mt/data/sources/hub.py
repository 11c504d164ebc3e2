"""Corpora from the Hugging Face Hub, through `datasets`: pinned to a commit, or from the cache if offline."""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import datasets
from datasets.exceptions import DatasetGenerationError
from huggingface_hub import constants, get_session

from mt.config.data import DataConfig
from mt.data.sources.read import ROWS_AT_ONCE, arrow_rows, needed_columns, row_pairs
from mt.data.sources.source import SPLIT_NAMES, NumberedPair, Part, Source, Splits, listed
from mt.errors import DataError

LOG = logging.getLogger(__name__)

COMMIT = re.compile(r"[0-9a-f]{40}")


def hub_source(hub_id: str, config: DataConfig) -> Source:
    """Download the corpus ``hub_id``, or take it from the cache if the Hub does not answer in time."""
    name, revision = config.name, config.revision
    corpus = hub_id + (f" ({name})" if name else "")
    datasets.disable_progress_bars()  # Those of downloads, which only a terminal shows, stay.
    with hub(f"data.path: {corpus}", config.hub_timeout_seconds):
        try:
            # Of the cells of a CSV file, null, NA and nan are text.
            loaded = datasets.load_dataset(hub_id, name, revision=revision, keep_default_na=False)
        except (TypeError, ValueError, datasets.exceptions.DatasetGenerationError):
            # It has other files, which do not have this option, or numbers with empty cells among them.
            loaded = datasets.load_dataset(hub_id, name, revision=revision)
    # The cache files it by its commit: <corpus>/<configuration>/<version>/<commit>/..
    folders = [Path(file["filename"]).parent.name for split in loaded.values() for file in split.cache_files]
    commit = next(filter(COMMIT.fullmatch, folders), None)
    # If a download fails, `datasets` uses any commit that is cached.
    if revision and COMMIT.fullmatch(revision) and commit not in (None, revision):
        cached = f"only commit {commit} is cached: check the network, or request that one"
        raise DataError(f"data.revision requests commit {revision} of {corpus}, and {cached}.")
    splits = _splits(loaded, corpus, config, commit)
    if "train" not in splits:
        raise DataError(f"{corpus} has no training split, only {listed(loaded)}: choose another corpus.")
    return Source("hub", splits)


def saved_splits(folder: Path, config: DataConfig) -> Splits:
    """The splits in a folder that `datasets` has written with ``save_to_disk``."""
    saved = datasets.load_from_disk(str(folder))
    loaded = saved if isinstance(saved, datasets.DatasetDict) else {"train": saved}
    return _splits(loaded, str(folder), config)


def _splits(
    loaded: Mapping[str, datasets.Dataset], corpus: str, config: DataConfig, commit: str | None = None
) -> Splits:
    splits: Splits = {}
    for split, names in SPLIT_NAMES.items():
        name = next((name for name in names if name in loaded), None)
        if name is not None:
            where = f"the {split} split of {corpus}"
            files = () if commit else tuple(Path(file["filename"]) for file in loaded[name].cache_files)
            pairs = partial(_pairs, loaded[name], config, where)
            splits[split] = [Part(where, "row", pairs, files, commit)]
    return splits


def _pairs(dataset: datasets.Dataset, config: DataConfig, where: str) -> Iterator[NumberedPair]:
    needed = dataset.select_columns(needed_columns(dataset.column_names, config)).with_format("arrow")
    return row_pairs(arrow_rows(needed.iter(batch_size=ROWS_AT_ONCE)), config, where)


@contextmanager
def hub(what: str, limit_seconds: float) -> Iterator[None]:
    """A ``with`` block that loads ``what``.

    If the Hub does not answer in time, its libraries are set offline: they would wait for minutes.
    """
    try:
        if not constants.HF_HUB_OFFLINE:
            get_session().head(constants.ENDPOINT, timeout=limit_seconds)
    # Those of the HTTP client, which depends on the version of the Hub's package.
    except Exception as error:
        endpoint = _without_password(constants.ENDPOINT)
        LOG.warning("%s does not answer (%s): only what is cached is used", endpoint, error_text(error))
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    # Also those of Arrow. Some say which configurations there are.
    except Exception as error:
        remedy = "Check the name; if it is private or gated, ask for access and log in with `hf auth login`"
        if constants.HF_HUB_OFFLINE:
            remedy = "The Hub is offline here, and this is not cached: load it once where there is a network"
        raise DataError(
            f"{what} cannot be loaded from the Hub: {error_text(error)}. {remedy}. Or give a file or folder."
        ) from None


def error_text(error: BaseException) -> str:
    """The text of a library's error, as part of a sentence."""
    if isinstance(error, DatasetGenerationError):
        error = error.__cause__ or error
    return _without_password(" ".join(str(error).split()).rstrip(".")) or type(error).__name__


def _without_password(text: str) -> str:
    """The text with addresses such as ``http://user:password@host`` as ``http://host``."""
    return re.sub(r"(?<=://)[^/@\s]+@", "", text)
