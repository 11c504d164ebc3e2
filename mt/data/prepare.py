"""From a config to training pairs: corpus, tokenizers, ids, all recorded in the run directory."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from datasets import Dataset
from tokenizers import normalizers

from mt.config.config import Config
from mt.config.data import OWN
from mt.config.sources import WriterConfig
from mt.data.batches.alignment import align
from mt.data.batches.dataset import DropCounts, encode_pairs
from mt.data.batches.pairs import EncodedPairs
from mt.data.batches.sampler import Share
from mt.data.batches.transforms import changed_sources
from mt.data.chunks import pairs_of, tables_of
from mt.data.corpus import Corpus, NamedSet, evenly_spaced, load_corpus, sets_of_sources, texts_to_write
from mt.data.corpus_report import cleaning_table, recorded_fingerprints
from mt.data.line_facts import line_facts
from mt.data.suspicions import corpus_warnings
from mt.data.text_form import TextForm, before_lower_case
from mt.data.tokenizers.external import external_tokenizer
from mt.data.tokenizers.tokenizer import Tokenizer, direction_name, tag_name
from mt.data.tokenizers.train import PIECES, extended, train_tokenizer
from mt.data.written import Writer, WrittenSide
from mt.display import counted, track
from mt.errors import DataError, MtError, RunError
from mt.files import write_atomically
from mt.run_directory import RunDirectory, as_run
from mt.sides import SIDES, Sides

LOG = logging.getLogger(__name__)

LONGEST_WORD = 200
"""Learning subwords is quadratic in the longest word; the longest that was ever printed has 195 letters."""


@dataclass(frozen=True)
class Prepared:
    """The data as training needs it."""

    corpus: Corpus
    tokenizers: Sides[Tokenizer]
    train: EncodedPairs
    validation: EncodedPairs
    validation_sets: dict[str, NamedSet]
    """What to validate on, by name: first the run's own, then what its further sources have."""


def prepare(config: Config, run: RunDirectory, *, resuming: bool) -> Prepared:
    """Load the corpus, train the tokenizers or load the run's, and encode the text."""
    corpus = load_corpus(config.data, config.cleaning, written=run.written_dir)
    if resuming:
        check_same_corpus(run, corpus)
        tokenizers = load_tokenizers(run)
    else:
        for warning in corpus_warnings(config, corpus):
            LOG.warning("%s", warning)
        tokenizers = make_tokenizers(corpus.train, config)
        tokenizers.src.save(run.src_tokenizer_file)
        tokenizers.tgt.save(run.tgt_tokenizer_file)
    max_length = config.data.max_length
    train, dropped = encode_pairs(corpus.train, tokenizers, max_length=max_length, shares=corpus.shares)
    own = [Share(len(corpus.validation), 1.0, config.data.tgt)]
    validation, left_out = encode_pairs(corpus.validation, tokenizers, max_length=max_length, shares=own)
    check_lengths(train, dropped, validation, config)
    sizes = {"src": tokenizers.src.size, "tgt": tokenizers.tgt.size}
    if not resuming:
        description = {
            **corpus.report.model_dump(mode="json"),
            "dropped_in_training": dropped,
            "target_ratio": train.target_ratio,
            "vocabulary_sizes": sizes,
            **line_facts(corpus.train),
            "example": next((text for text in corpus.validation["src"] if 20 <= len(text) <= 80), ""),
        }
        write_atomically(run.corpus_file, json.dumps(description, indent=2, ensure_ascii=False) + "\n")
    LOG.info(
        f"corpus: {len(train):,} training pairs, {len(corpus.validation):,} validation, "
        f"{len(corpus.test):,} test; vocabulary {sizes['src']:,} source, {sizes['tgt']:,} target"
    )
    if num_long := left_out["too long"]:
        long = counted(num_long, "validation pair")
        LOG.warning("%s longer than data.max_length: translated in parts, left out of the loss", long)
    if table := cleaning_table(corpus.report.splits["train"], dropped):
        LOG.warning("%s", table)
    level = logging.WARNING if corpus.report.has_leaked else logging.INFO
    LOG.log(level, "%s", corpus.report.leak_sentence)
    own_set = NamedSet(corpus.validation, config.data.direction)
    others = sets_of_sources(config.data, "validation", config.cleaning, corpus)
    validation_sets = {OWN: own_set, **others}
    train = with_alignment(train, tokenizers, config)
    return Prepared(corpus, tokenizers, train, validation, validation_sets)


class Writing(NamedTuple):
    """A side of a source's training pairs, and what writes it."""

    where: str
    """Its key in the config."""
    side: WrittenSide
    originals: list[str]
    """The texts of the corpus."""
    texts: list[str]
    """What is translated."""
    direction: Sides[str]
    writer: Writer


def missing_sides(
    config: Config, run: RunDirectory, open_writer: Callable[[WriterConfig, Sides[str]], Writer]
) -> list[Writing]:
    """What other runs have to write for this one; each of them translates in a direction."""
    configs = {OWN: config.data, **config.data.sources}
    names = [name for name, source in configs.items() if source.writer]
    if all(WrittenSide(run.written_dir / name).is_complete for name in names):
        return []
    missing = []
    for found, texts in texts_to_write(config.data, config.cleaning):
        source = found.config
        assert source.writer is not None  # It has text to translate.
        direction = source.direction if source.write_tgt else Sides(source.tgt, source.src)
        where = f"{found.where}.write_{SIDES[source.written_side]}"
        try:
            writer = open_writer(source.writer, direction)
        except MtError as error:
            raise RunError(f"{where}: {error}") from error
        changed = texts
        if source.write_tgt and config.as_written.is_any:
            # A student must not learn what no teacher has said.
            changed = changed_sources(config, texts, direction.src)
            shares = config.as_written.model_dump()
            writer.record["as_written"] = {**shares, "seed": config.training.seed}
        side = WrittenSide(run.written_dir / found.name)
        missing.append(Writing(where, side, texts, changed, direction, writer))
    return missing


def with_alignment(pairs: EncodedPairs, tokenizers: Sides[Tokenizer], config: Config) -> EncodedPairs:
    """The pairs with the source position of each target token, if the model learns it."""
    if not config.training.guided_alignment:
        return pairs
    return replace(pairs, src_positions=align(pairs, tokenizers.src.reserved.values()))


def make_tokenizers(pairs: Dataset, config: Config) -> Sides[Tokenizer]:
    """Tokenizers for source and target, trained on these pairs only; the same one twice if shared."""
    # Those of an imported model may share a vocabulary, but split text differently.
    is_one = config.tokenizer.shared and config.tokenizer.kind != "imported"
    pairs = _chosen(pairs, config)
    languages = {"src": config.data.src, "tgt": config.data.tgt} if config.tokenizer.lowercase else {}
    steps = {side: before_lower_case(language) for side, language in languages.items()}
    sides = [("src", "tgt")] if is_one else [("src",), ("tgt",)]
    texts = [_Texts(pairs, columns, steps) for columns in sides]
    made = [tokenizer for of_side in texts for tokenizer in _make_tokenizers(of_side, config)]
    if num_long := sum(of_side.num_long_words for of_side in texts):
        LOG.warning(
            "left out of the vocabulary: %s of over %d characters", counted(num_long, "word"), LONGEST_WORD
        )
    return Sides(made[0], made[1])


def _chosen(pairs: Dataset, config: Config) -> Dataset:
    """At most ``tokenizer.max_lines`` pairs, spread evenly over those that ``data.max_length`` may let in."""
    most = config.data.max_length
    fits = np.empty(len(pairs), np.bool_)
    for row, (src, tgt) in enumerate(pairs_of(pairs)):
        fits[row] = len(src.split()) < most and len(tgt.split()) < most
    rows = np.flatnonzero(fits)
    rows = rows if len(rows) else np.arange(len(pairs))
    taken = rows[evenly_spaced(len(rows), config.tokenizer.max_lines)]
    return pairs if len(taken) == len(pairs) else pairs.select(taken)


def _make_tokenizers(texts: "_Texts", config: Config) -> Iterator[Tokenizer]:
    """The tokenizer of each of these columns: that of the run to begin from, or a given or a new one."""
    if not config.init_from.sides.isdisjoint(texts.columns):
        origins = load_tokenizers(as_run(str(config.init_from.run)))
        for column in texts.columns:
            grown = extended(getattr(origins, column), texts, config.tokenizer)
            yield _with_beginnings(grown, texts.columns, config, is_new=False)
        return
    if config.tokenizer.kind == "file":
        made = external_tokenizer(config.tokenizer, limit_seconds=config.data.hub_timeout_seconds)
    else:
        made = train_tokenizer(texts, config.tokenizer)
    # Text to translate must look like the training text, which is in this form already.
    form = TextForm.of(config.cleaning)
    for column in texts.columns:
        tokenizer = Tokenizer.from_json(made.to_json().encode())
        tokenizer.begin_with(texts.steps.get(column, []))
        if tokenizer.form != form:
            tokenizer.begin_with(form.steps())
        yield _with_beginnings(tokenizer, texts.columns, config, is_new=True)


def _with_beginnings(
    tokenizer: Tokenizer, columns: Sequence[str], config: Config, *, is_new: bool
) -> Tokenizer:
    """That of sources with an id for each language to translate into, if there are several, and each tag."""
    if "src" not in columns and not config.model.share_embeddings:
        return tokenizer
    names = [direction_name(language) for language in config.data.targets]
    if len(names) == 1 and not tokenizer.has_directions:
        names = []
    names += dict.fromkeys(tag_name(source.tag) for source in config.data.sources.values() if source.tag)
    missing = [name for name in names if name not in tokenizer.reserved]
    return tokenizer.with_entries(missing, is_new=is_new) if missing else tokenizer


def check_lengths(train: EncodedPairs, dropped: DropCounts, validation: EncodedPairs, config: Config) -> None:
    """Check that pairs are left to train on, and for a loss if it decides which checkpoint is best."""
    limit = f"data.max_length ({config.data.max_length})"
    if not len(train):
        empty, long = dropped["empty"], dropped["too long"]
        raise DataError(f"no training pair is left: {empty:,} are empty, {long:,} are longer than {limit}.")
    if config.validation.metric == "loss" and not len(validation):
        remedy = "Raise it, or set validation.metric to bleu or chrf"
        raise DataError(f"no validation loss: no validation pair fits {limit}. {remedy}.")


def load_tokenizers(run: RunDirectory) -> Sides[Tokenizer]:
    """The tokenizers of a run, source and target."""
    return Sides(Tokenizer.load(run.src_tokenizer_file), Tokenizer.load(run.tgt_tokenizer_file))


@dataclass
class _Texts:
    """Texts of these columns, one column after the other, without words longer than `LONGEST_WORD`."""

    pairs: Dataset
    columns: Sequence[str]
    steps: Mapping[str, list[normalizers.Normalizer]]
    """How the text of a column is normalised, unless it stays as it is."""
    num_long_words: int = 0

    def __iter__(self) -> Iterator[str]:
        self.num_long_words = 0
        for column in self.columns:
            normalize = normalizers.Sequence(self.steps.get(column, [])).normalize_str
            tables = tables_of(self.pairs.select_columns([column]))
            for table in track(tables, "vocabulary", unit="lines", total=len(self.pairs), size=len):
                for text in table[column].to_pylist():
                    yield self._without_long_words(normalize(text))

    def _without_long_words(self, text: str) -> str:
        if len(text) <= LONGEST_WORD or max(map(len, text.split()), default=0) <= LONGEST_WORD:
            return text
        words = [word for word, _ in PIECES.pre_tokenize_str(text)]
        kept = [word for word in words if len(word) <= LONGEST_WORD]
        self.num_long_words += len(words) - len(kept)
        return "".join(kept)


def check_same_corpus(run: RunDirectory, corpus: Corpus) -> None:
    """Compare the text with that at the start of the run; its path may have changed."""
    try:
        recorded = recorded_fingerprints(run.read_corpus_report())
    except (OSError, ValueError) as error:
        raise RunError(f"{run.corpus_file} cannot be read ({error}): start over with --restart.") from error
    own, splits = corpus.report.sources[0], corpus.report.splits
    changed = [name for name, split in splits.items() if recorded.get(name) != split.fingerprint]
    if changed:
        on_hub = f" (its commit is in {run.corpus_file}: set data.revision)" if own.revision else ""
        raise RunError(
            f"the corpus is not the one that {run.path} began with: {' and '.join(changed)} differ. Restore "
            f"the old one{on_hub}, or use another --run PATH or --restart. A new run from its "
            f"weights: {run.adapt_command(own.path)}"
        )
