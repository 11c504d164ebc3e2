"""From ``data.path`` to three splits of sentence pairs that can be relied on."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import datasets

from mt.config.data import DataConfig
from mt.data.pair_table import PairTable
from mt.data.sources.find import find_source
from mt.data.sources.source import SPLITS, Part, Source, Split
from mt.errors import DataError


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs as datasets with exactly the columns ``src`` and ``tgt``, each a str and never None.

    Attributes:
        train: Pairs with text on both sides.
        validation: Pairs as they stand in the corpus, empty lines included.
        test: Likewise.
        description: What was loaded, in plain JSON types: ``path``, ``kind``, ``name``, ``src``, ``tgt``,
            ``revision`` (the commit of a Hub corpus, else None), and under ``splits`` for each split its
            ``origin`` (``given``, ``generated`` or ``carved``), where it was read ``from``, the number of
            ``pairs``, how many rows were ``dropped`` for which reason, and a ``fingerprint`` of the text.
    """

    train: datasets.Dataset
    validation: datasets.Dataset
    test: datasets.Dataset
    description: dict[str, object]


def load_corpus(config: DataConfig) -> Corpus:
    """Find the corpus, check every row, and carve the splits that it lacks from its training split.

    Rows of the training split that lack text on a side are dropped and counted; rows of the others never are.
    Which pairs are carved out is decided by a hash of the source alone: it is the same on every machine, does
    not change for a pair when others are added, and pairs with the same source stay together.

    Raises:
        ConfigError: If source and target language are the same.
        DataError: If there is no such corpus, it is broken, or too small to be split.
    """
    return _load(find_source(config), config)


def load_split(config: DataConfig, split: Split, *, undivided: bool = False) -> datasets.Dataset:
    """One split of what `load_corpus` gives, without reading the others where the corpus has it ready.

    Args:
        config: Which corpus.
        split: Which of its splits.
        undivided: Take a corpus of a single file, or of two parallel ones, whole, instead of carving it.

    Raises:
        ConfigError, DataError: As `load_corpus` does, for what is read.
    """
    source = find_source(config)
    whole = undivided and source.kind in ("file", "parallel text")
    if whole or (split != "train" and split in source.splits):
        table = PairTable()
        _read_evaluation_split(source.splits["train" if whole else split], split, table)
        return table.to_dataset()
    corpus = _load(source, config)
    return {"train": corpus.train, "validation": corpus.validation, "test": corpus.test}[split]


def _load(source: Source, config: DataConfig) -> Corpus:
    dropped: Counter[str] = Counter()
    tables = {split: PairTable() for split in SPLITS}
    _read_training_split(source, config, tables, dropped)
    for split in SPLITS:
        if split in source.splits and split != "train":
            _read_evaluation_split(source.splits[split], split, tables[split])
    splits = {split: _describe(split, source, tables[split], dropped) for split in SPLITS}
    return Corpus(
        train=tables["train"].to_dataset(),
        validation=tables["validation"].to_dataset(),
        test=tables["test"].to_dataset(),
        description={
            "path": config.path,
            "kind": source.kind,
            "name": config.name,
            "src": config.src,
            "tgt": config.tgt,
            "revision": source.revision,
            "splits": splits,
        },
    )


def carved_split(src: str, fraction: float) -> Split:
    """The split that a pair of an undivided corpus belongs to: ``fraction`` each of validation and test.

    Args:
        src: The source; how its words are spaced makes no difference.
        fraction: Expected share of each of the two.
    """
    digest = hashlib.blake2b(" ".join(src.split()).encode(), digest_size=8).digest()
    position = int.from_bytes(digest, "big") / 2**64
    if position < fraction:
        return "validation"
    return "test" if position < 2 * fraction else "train"


def _read_training_split(
    source: Source, config: DataConfig, tables: Mapping[Split, PairTable], dropped: Counter[str]
) -> None:
    """Fill the training table, and those of the splits that are carved from it."""
    pairs = _training_pairs(source.splits["train"], dropped)
    missing = [split for split in SPLITS if split not in source.splits]
    if missing:
        for src, tgt in pairs:
            split = carved_split(src, config.held_out_fraction)
            if split in missing:
                tables[split].append(src, tgt)
            elif config.num_train_pairs is None or len(tables["train"]) < config.num_train_pairs:
                tables["train"].append(src, tgt)
    else:
        for src, tgt in islice(pairs, config.num_train_pairs):
            tables["train"].append(src, tgt)
    empty = [split for split in ("train", *missing) if not len(tables[split])]
    if len(empty) == 1 + len(missing):
        where = ", ".join(part.where for part in source.splits["train"])
        rows = ", ".join(f"in {count:,} rows {reason}" for reason, count in dropped.items())
        raise DataError(f"No pair of {where} can be trained on: {rows or 'there are no rows'}.")
    if empty:
        raise DataError(
            f"{config.path} is too small to be split: none of its pairs came to the {' or '.join(empty)} "
            f"split at data.held_out_fraction={config.held_out_fraction:g}. Add pairs, change the fraction, "
            f"or bring a validation and a test split of your own."
        )


def _read_evaluation_split(parts: Sequence[Part], split: Split, table: PairTable) -> None:
    for src, tgt in _evaluation_pairs(parts):
        table.append(src, tgt)
    if not len(table):
        raise DataError(
            f"{', '.join(part.where for part in parts)} is empty, but should hold the {split} split."
        )


def _training_pairs(parts: Sequence[Part], dropped: Counter[str]) -> Iterator[tuple[str, str]]:
    for part in parts:
        for number, src, tgt in part.pairs:
            if not isinstance(src, str) or not src.strip():
                dropped[_what_lacks("source", src)] += 1
            elif not isinstance(tgt, str) or not tgt.strip():
                dropped[_what_lacks("target", tgt)] += 1
            else:
                _check_unicode(src, tgt, part, number)
                yield src, tgt


def _evaluation_pairs(parts: Sequence[Part]) -> Iterator[tuple[str, str]]:
    for part in parts:
        for number, src, tgt in part.pairs:
            if not isinstance(src, str) or not isinstance(tgt, str):
                lacks = _what_lacks("source", src) if not isinstance(src, str) else _what_lacks("target", tgt)
                raise DataError(
                    f"{part.where}, {part.unit} {number}: {lacks}. Nothing is dropped from validation and "
                    f"test data, so that scores stay comparable: correct the {part.unit} or take it out."
                )
            _check_unicode(src, tgt, part, number)
            yield src, tgt


def _what_lacks(side: str, value: object) -> str:
    if value is None:
        return f"the {side} is missing"
    return f"the {side} is empty" if isinstance(value, str) else f"the {side} is not text"


def _check_unicode(src: str, tgt: str, part: Part, number: int) -> None:
    """Half a surrogate pair, which JSON can spell, is no character and can be written nowhere."""
    try:
        src.encode()
        tgt.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{part.where}, {part.unit} {number}: {error.object[error.start]!r} is half a character (a lone "
            f"surrogate): correct the {part.unit} or take it out."
        ) from None


def _describe(split: Split, source: Source, table: PairTable, dropped: Counter[str]) -> dict[str, object]:
    if split not in source.splits:
        origin, parts = "carved", source.splits["train"]
    else:
        origin, parts = "generated" if source.kind == "built-in" else "given", source.splits[split]
    return {
        "origin": origin,
        "from": [part.where for part in parts],
        "pairs": len(table),
        "dropped": dict(dropped) if split == "train" else {},
        "fingerprint": table.fingerprint,
    }
