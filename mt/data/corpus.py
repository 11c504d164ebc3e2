"""Reads ``data.path`` and ``data.sources`` into three splits of checked and cleaned sentence pairs."""

import copy
import hashlib
import logging
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datasets import Dataset

from mt.config.data import OWN, CleaningConfig, DataConfig
from mt.data.batches.sampler import Share
from mt.data.cache import cached
from mt.data.chunks import CHUNK_SIZE, Pair, next_pairs, pairs_of
from mt.data.cleaning.checks import Dropped, checked_pairs
from mt.data.cleaning.filters import Cleaner
from mt.data.cleaning.leaks import Compared, LeakCheck
from mt.data.corpus_report import CorpusReport, Origin, SourceReport, SplitReport
from mt.data.sources.find import FoundSource, find_source, find_sources
from mt.data.sources.source import Part, Split, held_out_split
from mt.data.text_form import TextForm
from mt.data.written import WrittenSide
from mt.display import counted, track
from mt.errors import DataError, SplitError
from mt.sides import SIDES, Sides

LOG = logging.getLogger(__name__)

SCHEMA = pa.schema([("src", pa.string()), ("tgt", pa.string())])
NO_CLEANING = CleaningConfig(unicode_form="none", invisible="keep")

EVALUATION_SPLITS: tuple[Split, ...] = ("validation", "test")
_REPORT_FILE = "report.json"


def evenly_spaced(num_rows: int, most: int) -> npt.NDArray[np.int64]:
    """The indices of all rows, or of ``most`` of them, at even distances."""
    number = min(num_rows, most)
    return np.arange(number) * num_rows // number


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs as datasets with exactly the columns ``src`` and ``tgt``, each a str and never None."""

    train: Dataset
    validation: Dataset
    test: Dataset
    report: CorpusReport
    held_out: Sequence[Mapping[Split, Dataset]] = ()
    """What was held out from each source of another direction for the splits that it lacks itself."""

    @property
    def shares(self) -> tuple[Share, ...]:
        """The sources of the training pairs, in their order, with the weights that ``temperature`` makes."""
        return self.shares_in({})

    def shares_in(self, weights: Mapping[str, float]) -> tuple[Share, ...]:
        """The same in a stage, in which some sources have other weights, by their names."""
        sources, sizes = self.report.sources, defaultdict[Sides[str], float](float)
        of_sources = [weights.get(source.key or "", source.weight) for source in sources]
        for source, weight in zip(sources, of_sources, strict=True):
            sizes[source.direction] += source.pairs * weight
        largest, exponent = max(sizes.values()), 1 - 1 / self.report.temperature
        shares = []
        for source, weight in zip(sources, of_sources, strict=True):
            if weight:
                weight *= (largest / sizes[source.direction]) ** exponent
            shares.append(Share(source.pairs, weight, source.tgt, source.tag))
        return tuple(shares)

    def by_name(self) -> dict[Split, Dataset]:
        """The three datasets, by their names in the config."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


class PairTable(NamedTuple):
    """Pairs in a file, or in several one after the other, with the columns ``src`` and ``tgt``."""

    files: Sequence[Path]
    num_pairs: int
    fingerprint: str
    """Hexadecimal digest of all texts in order: the same on every machine for the same pairs."""

    @classmethod
    def write(cls, file: Path, pairs: Iterable[Pair]) -> Self:
        """Write pairs into a new file, in chunks."""
        num_pairs, digest, pairs = 0, hashlib.blake2b(digest_size=8), iter(pairs)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as stream:
            while chunk := next_pairs(pairs, CHUNK_SIZE):
                src, tgt = (pa.array(side, pa.string()) for side in zip(*chunk, strict=True))
                stream.write_batch(pa.record_batch([src, tgt], schema=SCHEMA))
                # Each after its length in bytes, so that nothing can be shifted from one to the next.
                texts = (text.encode() for pair in chunk for text in pair)
                digest.update(b"".join(b"%d:%b" % (len(text), text) for text in texts))
                num_pairs += len(chunk)
        return cls([file], num_pairs, digest.hexdigest())

    def load(self) -> Dataset:
        """The pairs, memory-mapped; `datasets` would read all of them for a fingerprint."""
        tables = (pa.ipc.open_stream(pa.memory_map(str(file))).read_all() for file in self.files)
        return Dataset(pa.concat_tables(tables), fingerprint=self.fingerprint)

    def report(self, origin: Origin, parts: Sequence[Part]) -> SplitReport:
        """The report on them as a split that was read from these parts."""
        return SplitReport(origin, _names(parts), self.num_pairs, self.fingerprint)


def load_corpus(
    config: DataConfig, cleaning: CleaningConfig = NO_CLEANING, *, written: Path | None = None
) -> Corpus:
    """Find the sources, check every row, clean the training split, and carve out splits that are missing.

    What a model writes is read in the folder ``written`` of a run. Without a run, what is in the corpus takes
    its place: the targets of ``data.path``, or the only side of a further source on both sides.
    """
    sources = find_sources(config)
    for number, found in enumerate(sources):
        if found.config.writer and written:
            sources[number] = found._replace(written=WrittenSide(written / found.name))
        elif found.config.writer:
            what = SIDES[found.config.written_side]
            LOG.warning("%s: write_%s is for mt train; what the corpus has is read", found.where, what)
    key = _key(sources, cleaning)

    def fill(folder: Path) -> int:
        report = _read(sources, cleaning, folder)
        if _key(sources, cleaning) != key:
            raise DataError(f"{config.path} changed while it was read: start again.")
        (folder / _REPORT_FILE).write_text(report.model_dump_json(), encoding="utf-8")
        return sum(split.pairs for split in report.splits.values())

    return cached(key, fill, _load)


def load_split(
    config: DataConfig,
    split: Split,
    cleaning: CleaningConfig = NO_CLEANING,
    *,
    written: Path | None = None,
) -> Dataset:
    """One split as in `load_corpus`, without reading the others if the corpus has this one."""
    if split != "train" and (parts := find_source(config).splits.get(split)):
        return load_parts(parts)
    return load_corpus(config, cleaning, written=written).by_name()[split]


class NamedSet(NamedTuple):
    """Pairs to validate or evaluate on."""

    pairs: Dataset
    direction: Sides[str]
    """Their languages."""


def sets_of_sources(
    config: DataConfig, split: Split, cleaning: CleaningConfig = NO_CLEANING, corpus: Corpus | None = None
) -> dict[str, NamedSet]:
    """This split of ``data.sources`` by their names: their own, or what was held out in the ``corpus``."""
    own, *others = find_sources(config)
    sets = {}
    for number, found in enumerate(others, start=1):
        direction = found.config.direction
        if parts := found.source.splits.get(split):
            sets[found.name] = NamedSet(load_parts(parts), direction)
        elif direction != own.config.direction and not found.config.writer:
            corpus = corpus or load_corpus(config, cleaning)
            if pairs := corpus.held_out[number].get(split):
                sets[found.name] = NamedSet(pairs, direction)
    return sets


def texts_to_write(config: DataConfig, cleaning: CleaningConfig) -> Iterator[tuple[FoundSource, list[str]]]:
    """Each source of which a model writes a side, with the other side of its training pairs."""
    sources = find_sources(config)
    for found in sources:
        if found.config.writer:
            given = 1 - found.config.written_side
            dropped = Dropped(takes_bad_rows=cleaning.skip_bad_rows)
            rows = _rows_to_train_on(found, sources, dropped, _carved(found, sources))
            texts = []
            for row in islice(rows, found.config.num_train_pairs):
                texts.append(row[given])
            yield found, texts


def _key(sources: Sequence[FoundSource], cleaning: CleaningConfig) -> object:
    """Everything that determines the corpus."""
    # Neither changes what is read: the length limit is applied when encoding.
    irrelevant = {"hub_timeout_seconds", "max_length"}
    key: list[object] = ["corpus", cleaning.model_dump(mode="json")]
    for found in sources:
        key += [found.weight, found.tag, found.config.model_dump(mode="json", exclude=irrelevant)]
        key.append(found.written and found.written.checksums())
        for split, parts in found.source.splits.items():
            # Including the names of files, whose extensions determine how they are read.
            key.append([split, *((part.where, part.identify()) for part in parts)])
    return key


def _load(folder: Path) -> Corpus:
    report = CorpusReport.model_validate_json((folder / _REPORT_FILE).read_bytes())
    splits = {}
    for split, recorded in report.splits.items():
        files = [folder / f"{split}.arrow"]
        if split == "train":
            files = [folder / f"train-{number}.arrow" for number in range(len(report.sources))]
        splits[split] = PairTable(files, recorded.pairs, recorded.fingerprint).load()
    held_out: list[dict[Split, Dataset]] = []
    for number, source in enumerate(report.sources):
        held_out.append({})
        for split, recorded in source.held_out.items():
            files = [folder / f"{split}-{number}.arrow"]
            held_out[number][split] = PairTable(files, recorded.pairs, recorded.fingerprint).load()
    return Corpus(**splits, report=report, held_out=held_out)


def _read(sources: Sequence[FoundSource], cleaning: CleaningConfig, folder: Path) -> CorpusReport:
    """Read and clean all splits, into files that `_load` opens."""
    config, own = sources[0].config, sources[0].source
    cleaner = Cleaner(cleaning)
    trains: list[PairTable] = []
    from_each = [_carved(found, sources) for found in sources]
    for number, found in enumerate(sources):
        pairs = _training_pairs(found, sources, cleaner, from_each[number])
        trains.append(PairTable.write(folder / f"train-{number}.arrow", pairs))
    carved = from_each[0]
    empty = [split for split, pairs in carved.items() if not pairs]
    if not trains[0].num_pairs:
        empty.append("train")
    if 0 < len(empty) <= len(carved):
        raise SplitError(
            f"{config.path} is too small to be split: no pair is for {' or '.join(empty)} at "
            f"data.held_out_fraction={config.held_out_fraction:g}. Change it, or give splits of your own."
        )
    origin: Origin = "generated" if own.kind == "built-in" else "given"
    held_out: dict[Split, SplitReport] = {}
    evaluation: dict[str, Dataset] = {}
    for split in EVALUATION_SPLITS:
        file = folder / f"{split}.arrow"
        if parts := own.splits.get(split):
            table = _held_out(file, parts)
            held_out[split] = table.report(origin, parts)
        else:
            table = PairTable.write(file, carved[split])
            held_out[split] = table.report("carved", own.splits["train"])
        evaluation[split] = table.load()
    leaks = LeakCheck(evaluation, TextForm.of(cleaning))
    reports: list[SourceReport] = []
    for number, (found, table) in enumerate(zip(sources, trains, strict=True)):
        parts = found.source.splits["train"]
        table = _without_leaks(table, found.config, config.direction, leaks, cleaner)
        if not table.num_pairs:
            reasons = cleaner.dropped.most_frequent_first().items()
            why = ", ".join(f"in {counted(number, 'row')} {reason}" for reason, number in reasons)
            where = ", ".join(_names(parts))
            raise DataError(f"No pair of {where} can be trained on: {why or 'there are no rows'}.")
        report = SourceReport(
            found.config.path,
            found.source.kind,
            found.config.name,
            *found.config.direction,
            parts[0].commit,
            found.weight,
            table.num_pairs,
            table.fingerprint,
            key=found.name,
            tag=found.tag,
            written=found.written.record if found.written else None,
        )
        for split, carved_pairs in from_each[number].items() if number else ():
            if carved_pairs and split not in found.source.splits:
                other = PairTable.write(folder / f"{split}-{number}.arrow", carved_pairs)
                report.held_out[split] = other.report("carved", parts)
        reports.append(report)
    dropped = cleaner.dropped.most_frequent_first()
    fingerprints = " ".join(report.fingerprint for report in reports)
    train = SplitReport(
        origin,
        [name for found in sources for name in _names(found.source.splits["train"])],
        sum(report.pairs for report in reports),
        hashlib.blake2b(fingerprints.encode(), digest_size=8).hexdigest() if reports[1:] else fingerprints,
        dropped,
        {reason: cleaner.dropped.examples[reason] for reason in dropped},
    )
    return CorpusReport(
        sources=reports,
        temperature=config.temperature,
        splits={"train": train, **held_out},
        leaks=leaks.report(),
        leaks_removed=cleaning.remove_leaks,
    )


def _without_leaks(
    table: PairTable, config: DataConfig, own: Sides[str], leaks: LeakCheck, cleaner: Cleaner
) -> PairTable:
    """The training pairs of a source, without those that are held out if these are to be removed."""
    train = table.load()
    # Text of which a model wrote the sources must be no reference, whatever it wrote.
    compared = train
    by: Compared = "tgt" if config.write_src else "pair"
    if (config.tgt, config.src) == own:
        compared = train.rename_columns({"src": "tgt", "tgt": "src"})
        by = "src" if config.write_src else "pair"
    is_leaked = leaks.search(compared, by)
    if not (cleaner.config.remove_leaks and is_leaked.any()):
        return table
    # The old file stays open until it is copied.
    [file] = table.files
    file.unlink()
    cleaner.dropped.add("the pair is in validation or test", [*compress(pairs_of(train), is_leaked)])
    return PairTable.write(file, compress(pairs_of(train), ~is_leaked))


def _hashed_side(found: FoundSource, sources: Sequence[FoundSource]) -> int:
    """By which side, 0 or 1, the pairs of a source are split: that of the language of the run's source.

    Of two other languages, it is the source of the first such source.
    """
    direction, language = found.config.direction, sources[0].config.src
    if language not in direction:
        alike = (other.config for other in sources if {*other.config.direction} == {*direction})
        language = next(alike).src
    return direction.index(language)


def _carved(found: FoundSource, sources: Sequence[FoundSource]) -> dict[Split, list[Pair]]:
    """The splits that are held out from the training pairs of a source, with nothing in them yet."""
    own = sources[0]
    # More text of the run's own direction is for training alone, as is what a model writes. That of another
    # direction may be the own text from another side: what is held out there must not be trained on here.
    if found is not own and (found.config.direction == own.config.direction or found.config.writer):
        return {}
    given = own.source.splits.keys() & found.source.splits.keys()
    return {split: [] for split in EVALUATION_SPLITS if split not in given}


def _rows_to_train_on(
    found: FoundSource, sources: Sequence[FoundSource], dropped: Dropped, carved: dict[Split, list[Pair]]
) -> Iterator[Pair]:
    """All rows but those that belong to a carved split, by a hash of a side: they go there instead."""
    hashed_side = _hashed_side(found, sources)
    checked = checked_pairs(found.source.splits["train"], dropped)
    for pair in track(checked, "reading", unit="pairs"):
        split = held_out_split(pair[hashed_side], found.config.held_out_fraction) if carved else None
        if split in carved:
            carved[split].append(pair)
        else:
            yield pair


def _training_pairs(
    found: FoundSource, sources: Sequence[FoundSource], cleaner: Cleaner, carved: dict[Split, list[Pair]]
) -> Iterator[Pair]:
    """The pairs to train on, cleaned, with what was written in place of a side."""
    config, side = found.config, found.written
    rows = _rows_to_train_on(found, sources, cleaner.dropped, carved)
    pairs, num_left = rows, config.num_train_pairs or sys.maxsize
    if side is not None:
        chosen = islice(rows, config.num_train_pairs)
        pairs, num_left = _with_written(chosen, side, config.written_side, cleaner.dropped), sys.maxsize
    elif config.writer and found.name != OWN:
        # Both sides are the same for now.
        yield from islice(rows, config.num_train_pairs)
        return
    # Never beyond the limit: filters must not see what follows it.
    while chunk := next_pairs(pairs, min(CHUNK_SIZE, num_left)):
        kept = cleaner.clean(chunk)
        num_left -= len(kept)
        yield from kept
    if carved:
        # Beyond the limit there may be more to carve, but nothing to drop.
        cleaner.dropped = copy.deepcopy(cleaner.dropped)
        deque(rows, maxlen=0)


def _with_written(
    rows: Iterable[Pair], side: WrittenSide, written_side: int, dropped: Dropped
) -> Iterator[Pair]:
    """The rows with what was written in place of a side; those without a whole sentence are dropped."""
    # The fewer, if they are not as many, have other text at the end.
    for row, (original, text, translation) in zip_longest(rows, side.rows(), fillvalue=("", "", "")):
        if original != row[1 - written_side]:
            raise DataError(
                f"{side.folder} has the translation of other text than the corpus: restore that text, or "
                "start over with --restart."
            )
        if translation is None:
            dropped.add("what was written is cut at its length limit", [(text, None)])
        else:
            yield (text, translation) if written_side else (translation, text)


def load_parts(parts: Sequence[Part]) -> Dataset:
    """All pairs of a validation or test split."""
    with TemporaryDirectory() as folder:
        return _held_out(Path(folder) / "pairs", parts).load()


def _held_out(file: Path, parts: Sequence[Part]) -> PairTable:
    table = PairTable.write(file, checked_pairs(parts))
    if not table.num_pairs:
        raise DataError(f"{', '.join(_names(parts))} is empty.")
    return table


def _names(parts: Sequence[Part]) -> list[str]:
    return [part.where for part in parts]
