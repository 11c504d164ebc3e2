"""The corpora that are generated, so that everything works with no network."""

from collections.abc import Iterator

from mt.builtin.primer.generate import PRIMER_VERSION, primer_pairs
from mt.builtin.reverse import REVERSE_VERSION, reverse_pairs
from mt.data.sources.source import SPLITS, NumberedPair, Part, Source, Split, did_you_mean
from mt.errors import DataError

PREFIX = "builtin:"
PRIMER = "builtin:primer"
REVERSE = "builtin:reverse"
REVERSE_CHARACTERS = "builtin:reverse-characters"

NUM_PAIRS: dict[str, dict[Split, int]] = {
    PRIMER: {"train": 40_000, "validation": 500, "test": 1_000},
    REVERSE: {"train": 20_000, "validation": 500, "test": 1_000},
    REVERSE_CHARACTERS: {"train": 20_000, "validation": 500, "test": 1_000},
}


def builtin_source(path: str, src: str, tgt: str, *, num_train_pairs: int | None, seed: int) -> Source:
    """The built-in corpus ``path``, with ``num_train_pairs`` for training where that is given.

    Raises:
        DataError: If there is no such corpus, or it is not of these languages.
    """
    if path not in NUM_PAIRS:
        raise DataError(
            f"data.path: there is no built-in corpus {path!r}, only {PRIMER}, {REVERSE} and "
            f"{REVERSE_CHARACTERS}.{did_you_mean(path, NUM_PAIRS)}"
        )
    if path == PRIMER and {src, tgt} != {"en", "de"}:
        raise DataError(
            f"{PRIMER} is English and German: data.src and data.tgt must be en and de, or de and en, "
            f"not {src!r} and {tgt!r}."
        )
    sizes = NUM_PAIRS[path] | ({} if num_train_pairs is None else {"train": num_train_pairs})
    pairs = {split: _pairs(path, split, sizes[split], seed, swapped=src == "de") for split in SPLITS}
    version = PRIMER_VERSION if path == PRIMER else REVERSE_VERSION
    parts = {
        split: Part(f"{path}, {split}", "row", pairs[split], lambda: f"version {version}") for split in SPLITS
    }
    return Source("built-in", {split: [part] for split, part in parts.items()})


def _pairs(path: str, split: Split, num_pairs: int, seed: int, *, swapped: bool) -> Iterator[NumberedPair]:
    if path == PRIMER:
        generated = primer_pairs(split, num_pairs, seed)
    else:
        characters, swapped = path == REVERSE_CHARACTERS, False
        generated = reverse_pairs(split, num_pairs, seed, characters=characters)
    for number, (src, tgt) in enumerate(generated, start=1):
        yield (number, tgt, src) if swapped else (number, src, tgt)
