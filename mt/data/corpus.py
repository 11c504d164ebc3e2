"""Reads ``data.path`` and ``data.mix`` into three splits of checked and cleaned sentence pairs."""

import contextlib
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import datasets
import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from mt.config.data import CleaningConfig, DataConfig
from mt.data.batches.sampler import Share
from mt.data.cache import Cache, cached, recipe
from mt.data.cache_folder import cache_folder
from mt.data.cleaning.checks import evaluation_pairs, training_pairs
from mt.data.cleaning.filters import Cleaner
from mt.data.cleaning.leaks import LeakCheck
from mt.data.corpus_report import (
    CorpusReport,
    MixedSourceReport,
    SourceReport,
    SplitReport,
    SplitReports,
    TrainingSplitReport,
)
from mt.data.pair_table import CHUNK_SIZE, PAIRS_IN_MEMORY, PairTable, load_table, save_table
from mt.data.sources.find import find_source, mixed_sources
from mt.data.sources.source import SPLITS, Part, Source, Split, carved_split
from mt.data.text_form import TextForm
from mt.display import counted, track
from mt.errors import ConfigError, DataError, SplitError

CORPUS_VERSION = 5
"""Raised when the same files would be read, cleaned, checked or carved into other pairs or another report."""

NO_CLEANING = CleaningConfig(unicode_form="none", invisible="keep")

# What is cached of a corpus beside its pairs.
_FACTS_FILE = "facts.json"
_FACTS = TypeAdapter(tuple[tuple[Share, ...], CorpusReport])


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs as datasets with exactly the columns ``src`` and ``tgt``, each a str and never None.

    Attributes:
        train: Pairs with text on both sides, cleaned as configured.
        validation: All pairs of the split as they are in the corpus, but those that are empty on both sides.
        test: Likewise.
        shares: The sources of the training pairs, in their order.
        report: What was loaded, and what was dropped.
    """

    train: datasets.Dataset
    validation: datasets.Dataset
    test: datasets.Dataset
    shares: tuple[Share, ...]
    report: CorpusReport

    def by_name(self) -> dict[Split, datasets.Dataset]:
        """The three datasets, by their names in the config."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


@dataclass(frozen=True)
class _Found:
    """A source, and the config that names it."""

    config: DataConfig
    weight: float
    source: Source


def load_corpus(config: DataConfig, cleaning: CleaningConfig = NO_CLEANING) -> Corpus:
    """Find the sources, check every row, clean the training split, and carve out splits that no source has.

    A corpus of more than `PAIRS_IN_MEMORY` pairs is cached, and found by everything that determines it.

    Validation and test are those of ``data.path``; what it lacks is carved from its training split. Rows of
    the training split that lack text on a side are dropped and counted; rows of the other splits never are.
    Which pairs are carved out depends on a hash of the source sentence alone: it is the same on every
    machine, does not change when other pairs are added, and keeps pairs with the same source together.
    """
    found = [
        _Found(source_config, weight, _find(source_config, is_mixed=number > 0))
        for number, (source_config, weight) in enumerate(mixed_sources(config))
    ]
    key = _identity(found, cleaning)
    if key is not None and (entry := Cache(cache_folder()).find(key)):
        with contextlib.suppress(OSError):  # The cache may be deleted at any time.
            return _load(entry)
    corpus = _read(found, cleaning)
    is_large = sum(map(len, corpus.by_name().values())) > PAIRS_IN_MEMORY
    # If a file changed in the meantime, what was read is neither its old nor its new content.
    if key is None or not is_large or _identity(found, cleaning) != key:
        return corpus
    return cached(
        key,
        lambda folder: _save(folder, corpus),
        _load,
        lambda: corpus,
        otherwise="the corpus will be read again next time",
    )


def load_split(config: DataConfig, split: Split, cleaning: CleaningConfig = NO_CLEANING) -> datasets.Dataset:
    """One split as in `load_corpus`, without reading the others if the corpus has this one."""
    if split != "train":
        source = _find(config.model_copy(update={"mix": None}), is_mixed=False)
        if split in source.splits:
            return _read_evaluation_split(source.splits[split], split).to_dataset()
    return load_corpus(config, cleaning).by_name()[split]


def other_validation_splits(config: DataConfig) -> dict[str, datasets.Dataset]:
    """The validation splits of the sources in ``data.mix``, by the last part of their path."""
    _, *mixed = mixed_sources(config)
    sources = ((each.path, _find(each, is_mixed=True).splits) for each, _ in mixed)
    return {
        Path(path.rpartition(":")[2]).name: _read_evaluation_split(
            splits["validation"], "validation"
        ).to_dataset()
        for path, splits in sources
        if "validation" in splits
    }


def load_undivided(config: DataConfig) -> datasets.Dataset | None:
    """All pairs of a corpus that is files without splits, empty lines included; None if it has splits."""
    source = _find(config, is_mixed=False)
    if source.kind not in ("file", "files", "parallel text"):
        return None
    return _read_evaluation_split(source.splits["train"], "test").to_dataset()


def _find(config: DataConfig, *, is_mixed: bool) -> Source:
    try:
        return find_source(config)
    except (ConfigError, DataError) as error:
        raise (type(error)(f"data.mix, {config.path}: {error}") if is_mixed else error) from None


def _identity(found: Sequence[_Found], cleaning: CleaningConfig) -> object:
    """Everything that determines the corpus; None if the content of a source is unknown before it is read."""
    try:
        sources = [
            # Including their names, because the extension of a file determines how it is read.
            {split: [(part.where, part.identify()) for part in parts] for split, parts in splits.items()}
            for splits in (each.source.splits for each in found)
        ]
    except OSError:
        return None
    if any(digest is None for source in sources for parts in source.values() for _, digest in parts):
        return None
    # None of these changes what is read: the length limit is applied when encoding.
    irrelevant = {"hub_timeout_seconds", "max_length"}
    normalising = ["tokenizers"] if TextForm.of(cleaning).steps() else []
    configs = [[each.config.model_dump(mode="json", exclude=irrelevant), each.weight] for each in found]
    return {
        "what": "corpus",
        "sources": sources,
        "configs": configs,
        "cleaning": cleaning.model_dump(mode="json"),
        "recipe": recipe(CORPUS_VERSION, "pyarrow", "datasets", *normalising),
    }


def _save(folder: Path, corpus: Corpus) -> None:
    for split, dataset in corpus.by_name().items():
        save_table(dataset, folder / f"{split}.arrow")
    (folder / _FACTS_FILE).write_bytes(_FACTS.dump_json((corpus.shares, corpus.report), by_alias=True))


def _load(entry: Path) -> Corpus:
    train, validation, test = (
        load_table(entry / f"{split}.arrow", fingerprint=f"{entry.name}-{split}") for split in SPLITS
    )
    shares, report = _FACTS.validate_json((entry / _FACTS_FILE).read_bytes(), strict=True)
    return Corpus(train, validation, test, shares, report)


def _read(found: Sequence[_Found], cleaning: CleaningConfig) -> Corpus:
    """Read and clean all splits."""
    source = found[0].source
    carved = {split: PairTable() for split in SPLITS if split not in source.splits}
    cleaner = Cleaner(cleaning)
    tables = [
        _read_training_split(
            each, cleaner, carved if each is found[0] else {}, skip_bad_rows=cleaning.skip_bad_rows
        )
        for each in found
    ]
    evaluation = carved | {
        split: _read_evaluation_split(parts, split)
        for split, parts in source.splits.items()
        if split != "train"
    }
    held_out: dict[str, datasets.Dataset] = {split: table.to_dataset() for split, table in evaluation.items()}
    leaks = LeakCheck(held_out, TextForm.of(cleaning))
    trains = []
    for number, each in enumerate(found):
        train = tables[number].to_dataset()
        leaked = leaks.search(train)
        if cleaning.remove_leaks and len(leaked):
            before = cleaner.dropped.counts.copy()
            tables[number] = _without(leaked, train, cleaner)
            train = tables[number].to_dataset()
            _check_pairs_left(each.source, tables[number], cleaner.dropped.counts - before)
        trains.append(train)
    train = trains[0] if len(trains) == 1 else datasets.concatenate_datasets(trains)
    report = CorpusReport(
        **vars(_source_report(found[0])),
        sources=[
            MixedSourceReport(
                **vars(_source_report(each)),
                weight=each.weight,
                pairs=len(table),
                fingerprint=table.fingerprint,
            )
            for table, each in zip(tables, found, strict=True)
        ],
        splits=SplitReports(
            _training_report(found, tables, cleaner),
            *(_evaluation_report(split, source, evaluation[split]) for split in ("validation", "test")),
        ),
        leaks=leaks.report(),
        leaks_removed=cleaning.remove_leaks,
    )
    shares = tuple(Share(len(table), each.weight) for table, each in zip(tables, found, strict=True))
    return Corpus(train, held_out["validation"], held_out["test"], shares, report)


def _read_training_split(
    found: _Found, cleaner: Cleaner, carved: Mapping[Split, PairTable], *, skip_bad_rows: bool
) -> PairTable:
    """The pairs to train on; those that belong to a carved split go to its table instead."""
    config, before = found.config, cleaner.dropped.counts.copy()
    table, limit = PairTable(), config.num_train_pairs
    pairs = training_pairs(found.source.splits["train"], cleaner.dropped, skip_bad_rows=skip_bad_rows)
    pairs = iter(track(pairs, "reading", unit="pairs"))
    if carved:
        pairs = _carve(pairs, carved, config.held_out_fraction)
    # Never beyond the limit: filters must not see what follows it.
    while chunk := list(islice(pairs, min(CHUNK_SIZE, (limit or len(table) + CHUNK_SIZE) - len(table)))):
        for src, tgt in cleaner.clean(chunk):
            table.append(src, tgt)
    if carved:
        # Beyond the limit there may be more to carve, but nothing to drop.
        counts, examples = cleaner.dropped.counts.copy(), copy.deepcopy(cleaner.dropped.examples)
        for _ in pairs:
            pass
        cleaner.dropped.counts, cleaner.dropped.examples = counts, examples
    dropped = cleaner.dropped.counts - before
    empty = [split for split, split_table in carved.items() if not len(split_table)]
    if dropped or len(empty) == len(carved):
        _check_pairs_left(found.source, table, dropped)
    if empty or not len(table):
        splits = " or ".join(empty) if len(table) else "train"
        raise SplitError(
            f"{config.path} is too small to be split: none of its pairs were assigned to the {splits} "
            f"split at data.held_out_fraction={config.held_out_fraction:g}. Add pairs, change the "
            f"fraction, or provide your own validation and test splits."
        )
    return table


def _carve(
    pairs: Iterator[tuple[str, str]], carved: Mapping[Split, PairTable], fraction: float
) -> Iterator[tuple[str, str]]:
    for src, tgt in pairs:
        table = carved.get(carved_split(src, fraction))
        if table is None:
            yield src, tgt
        else:
            table.append(src, tgt)


def _check_pairs_left(source: Source, table: PairTable, dropped: Counter[str]) -> None:
    if not len(table):
        rows = ", ".join(
            f"in {counted(count, 'row')} {reason}" for reason, count in _most_frequent_first(dropped)
        )
        raise DataError(
            f"No pair of {_where(source.splits['train'])} can be trained on: {rows or 'there are no rows'}."
        )


def _most_frequent_first(dropped: Counter[str]) -> list[tuple[str, int]]:
    """Reasons and counts, those with equal counts by their names."""
    return sorted(dropped.items(), key=lambda item: (-item[1], item[0]))


def _read_evaluation_split(parts: Sequence[Part], split: Split) -> PairTable:
    table = PairTable()
    for src, tgt in evaluation_pairs(parts):
        table.append(src, tgt)
    if not len(table):
        raise DataError(f"{_where(parts)} is empty, but should contain the {split} split.")
    return table


def _without(leaked: npt.NDArray[np.int64], train: datasets.Dataset, cleaner: Cleaner) -> PairTable:
    """The training pairs without the rows ``leaked``, which are counted as dropped."""
    table = PairTable()
    is_leaked = np.zeros(len(train), dtype=np.bool_)
    is_leaked[leaked] = True
    for start in range(0, len(train), CHUNK_SIZE):
        chunk = train[start : start + CHUNK_SIZE]
        for i, (src, tgt) in enumerate(zip(chunk["src"], chunk["tgt"], strict=True), start):
            if is_leaked[i]:
                cleaner.dropped.add("the pair is in validation or test", src, tgt)
            else:
                table.append(src, tgt)
    return table


def _where(parts: Sequence[Part]) -> str:
    return ", ".join(part.where for part in parts)


def _source_report(found: _Found) -> SourceReport:
    config, source = found.config, found.source
    return SourceReport(config.path, source.kind, config.name, config.src, config.tgt, source.revision)


def _training_report(
    found: Sequence[_Found], tables: Sequence[PairTable], cleaner: Cleaner
) -> TrainingSplitReport:
    fingerprints = [table.fingerprint for table in tables]
    dropped = dict(_most_frequent_first(cleaner.dropped.counts))
    joined = hashlib.blake2b(" ".join(fingerprints).encode(), digest_size=8).hexdigest()
    return TrainingSplitReport(
        origin=_origin(found[0].source),
        parts=[part.where for each in found for part in each.source.splits["train"]],
        pairs=sum(map(len, tables)),
        dropped=dropped,
        fingerprint=fingerprints[0] if len(fingerprints) == 1 else joined,
        examples={reason: cleaner.dropped.examples[reason] for reason in dropped},
        rewritten=cleaner.num_rewritten,
    )


def _evaluation_report(split: Split, source: Source, table: PairTable) -> SplitReport:
    return SplitReport(
        origin=_origin(source) if split in source.splits else "carved",
        parts=[part.where for part in source.splits.get(split, source.splits["train"])],
        pairs=len(table),
        dropped={},
        fingerprint=table.fingerprint,
    )


def _origin(source: Source) -> Literal["generated", "given"]:
    return "generated" if source.kind == "built-in" else "given"
