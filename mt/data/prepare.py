"""From a config to training pairs: corpus, tokenizers, ids, all recorded in the run directory."""

import json
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets
import numpy as np
from tokenizers import pre_tokenizers

from mt.config.config import Config
from mt.data.batches.alignment import Places, align
from mt.data.batches.dataset import CHUNK_SIZE, DropCounts, encode_pairs
from mt.data.batches.pairs import EncodedPairs
from mt.data.corpus import Corpus, load_corpus, other_validation_splits, pairs_of
from mt.data.corpus_report import cleaning_table, leak_sentence, recorded_fingerprints
from mt.data.suspicions import corpus_warnings
from mt.data.text_form import DOTLESS, DOTLESS_STEPS, TextForm, has_dotless_i
from mt.data.tokenizers.external import external_tokenizer
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import PIECES, extended, train_tokenizer
from mt.display import counted, track
from mt.errors import DataError, RunError
from mt.files import write_atomically
from mt.run_directory import RunDirectory

LOG = logging.getLogger(__name__)

_DOTLESS = str.maketrans(DOTLESS)
LONGEST_WORD = 200
"""Learning subwords is quadratic in the longest word; the longest that was ever printed has 195 letters."""


@dataclass(frozen=True)
class Prepared:
    """The data as training needs it."""

    corpus: Corpus
    src_tokenizer: Tokenizer
    tgt_tokenizer: Tokenizer
    train: EncodedPairs
    validation: EncodedPairs
    other_validation: dict[str, datasets.Dataset]
    """The validation splits of ``data.mix``, which are scored as well, by name."""
    places: Places | None
    """The source position of each target token of ``train``, if the model learns it."""


def prepare(config: Config, run: RunDirectory, *, resuming: bool) -> Prepared:
    """Load the corpus, train the tokenizers or load the run's, and encode the text."""
    corpus = load_corpus(config.data, config.cleaning)
    if resuming:
        check_same_corpus(run, corpus)
        tokenizers = load_tokenizers(run)
    else:
        for warning in corpus_warnings(config, corpus):
            LOG.warning("%s", warning)
        tokenizers = make_tokenizers(corpus.train, config)
        for tokenizer, file in zip(tokenizers, (run.src_tokenizer_file, run.tgt_tokenizer_file), strict=True):
            tokenizer.save(file)
    max_length = config.data.max_length
    fingerprint = corpus.report.splits["train"].fingerprint
    train, dropped = encode_pairs(
        corpus.train, *tokenizers, max_length=max_length, shares=corpus.shares, fingerprint=fingerprint
    )
    validation, _ = encode_pairs(corpus.validation, *tokenizers, max_length=max_length)
    check_lengths(train, dropped, validation, config)
    sizes = {side: tokenizer.size for side, tokenizer in zip(("src", "tgt"), tokenizers, strict=True)}
    if not resuming:
        description = {
            **corpus.report.model_dump(mode="json"),
            "dropped_in_training": dropped,
            "target_ratio": train.target_ratio,
            "vocabulary_sizes": sizes,
            "example": next((text for text in corpus.validation["src"] if 20 <= len(text) <= 80), ""),
        }
        write_atomically(run.corpus_file, json.dumps(description, indent=2, ensure_ascii=False) + "\n")
    LOG.info(
        f"corpus: {len(train):,} training pairs, {len(corpus.validation):,} validation, "
        f"{len(corpus.test):,} test; vocabulary {sizes['src']:,} source, {sizes['tgt']:,} target"
    )
    if table := cleaning_table(corpus.report.splits["train"], dropped):
        LOG.warning("%s", table)
    leaks, has_leaked = leak_sentence(corpus.report)
    LOG.log(logging.WARNING if has_leaked else logging.INFO, "%s", leaks)
    return Prepared(
        corpus,
        *tokenizers,
        train,
        validation,
        other_validation_splits(config.data),
        align(train) if config.training.guided_alignment else None,
    )


def make_tokenizers(pairs: datasets.Dataset, config: Config) -> tuple[Tokenizer, Tokenizer]:
    """Tokenizers for source and target, trained on these pairs only; the same one twice if shared."""
    # Those of an imported model may share a vocabulary, but split text differently.
    is_one = config.tokenizer.shared and config.tokenizer.kind != "imported"
    pairs = _chosen(pairs, config)
    languages = {"src": config.data.src, "tgt": config.data.tgt}
    dotless = {side for side in languages if config.tokenizer.lowercase and has_dotless_i(languages[side])}
    sides = [("src", "tgt")] if is_one else [("src",), ("tgt",)]
    texts = [_Texts(pairs, columns, dotless) for columns in sides]
    made = [tokenizer for of_side in texts for tokenizer in _make_tokenizers(of_side, config)]
    if num_long := sum(of_side.num_long_words for of_side in texts):
        LOG.warning(
            "left out of the vocabulary: %s of over %d characters", counted(num_long, "word"), LONGEST_WORD
        )
    return made[0], made[-1]


def _chosen(pairs: datasets.Dataset, config: Config) -> datasets.Dataset:
    """At most ``tokenizer.max_lines`` pairs, spread evenly over those that ``data.max_length`` may let in."""
    most = config.data.max_length
    # So many words have spaces between them; splitting each text into words would take longer.
    fits = (
        all(len(text) < 2 * most - 1 or len(text.split()) < most for text in pair) for pair in pairs_of(pairs)
    )
    rows = np.flatnonzero(np.fromiter(fits, np.bool_, len(pairs)))
    rows = rows if len(rows) else np.arange(len(pairs))
    num_taken = min(len(rows), config.tokenizer.max_lines)
    if num_taken == len(pairs):
        return pairs
    return pairs.select(rows[np.arange(num_taken) * len(rows) // num_taken])


def _make_tokenizers(texts: "_Texts", config: Config) -> list[Tokenizer]:
    """The tokenizer of each of these columns: that of the run to begin from, or a given or a new one."""
    if not config.init_from.sides.isdisjoint(texts.columns):
        origins = load_tokenizers(RunDirectory(Path(str(config.init_from.run))))
        chosen = [origins[column == "tgt"] for column in texts.columns]
        return (
            [extended(old, texts, config.tokenizer) for old in chosen] if config.tokenizer.extend else chosen
        )
    if config.tokenizer.kind == "file":
        made = external_tokenizer(config.tokenizer, limit_seconds=config.data.hub_timeout_seconds)
    else:
        made = train_tokenizer(texts, config.tokenizer)
    # Text to translate must look like the training text, which is in this form already.
    form, tokenizers = TextForm.of(config.cleaning), []
    for column in texts.columns:
        tokenizer = Tokenizer.from_json(made.to_json().encode())
        if column in texts.dotless:
            tokenizer.begin_with(DOTLESS_STEPS)
        if tokenizer.form != form:
            tokenizer.begin_with(form.steps())
        tokenizers.append(tokenizer)
    return tokenizers


def check_lengths(train: EncodedPairs, dropped: DropCounts, validation: EncodedPairs, config: Config) -> None:
    """Check that pairs are left to train on, and for a loss if it decides which checkpoint is best."""
    limit = f"data.max_length ({config.data.max_length})"
    if not len(train):
        raise DataError(
            f"no training pair is left: {dropped['empty']:,} are empty on a side, and "
            f"{dropped['too long']:,} are longer than {limit}."
        )
    if config.validation.metric == "loss" and not len(validation):
        raise DataError(
            f"there would be no validation loss: no validation pair has text on both sides and fits {limit}. "
            "Raise it, or set validation.metric to bleu or chrf."
        )


def load_tokenizers(run: RunDirectory) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of a run, source and target."""
    return Tokenizer.load(run.src_tokenizer_file), Tokenizer.load(run.tgt_tokenizer_file)


class _Texts:
    """Texts of these columns, one column after the other, without words longer than `LONGEST_WORD`."""

    def __init__(self, pairs: datasets.Dataset, columns: Sequence[str], dotless: Collection[str]) -> None:
        self._pairs = pairs
        self.columns = columns
        self.dotless = dotless
        """The columns whose language has another lower case of I and İ."""
        self.num_long_words = 0

    def __iter__(self) -> Iterator[str]:
        self.num_long_words = 0
        num_texts = len(self._pairs)
        for column in self.columns:
            chunks = self._pairs.select_columns([column]).iter(batch_size=CHUNK_SIZE)
            texts = (chunk[column] for chunk in chunks)
            for some in track(texts, "vocabulary", unit="lines", total=num_texts, size=len):
                for text in some:
                    lower = text.translate(_DOTLESS) if column in self.dotless else text
                    yield self._without_long_words(lower)

    def _without_long_words(self, text: str) -> str:
        if len(text) <= LONGEST_WORD or max(map(len, text.split()), default=0) <= LONGEST_WORD:
            return text
        words = [word for word, _ in pre_tokenizers.Split(PIECES, "isolated").pre_tokenize_str(text)]
        kept = [word for word in words if len(word) <= LONGEST_WORD]
        self.num_long_words += len(words) - len(kept)
        return "".join(kept)


def check_same_corpus(run: RunDirectory, corpus: Corpus) -> None:
    """Compare the text with that at the start of the run; its path may have changed."""
    try:
        recorded = recorded_fingerprints(run.read_corpus_report())
    except (OSError, ValueError) as error:
        raise RunError(
            f"{run.corpus_file} cannot be read ({error}), which says what corpus this run began with. Start "
            "over with --restart, which moves the old run aside."
        ) from error
    own, splits = corpus.report.sources[0], corpus.report.splits
    changed = [name for name, split in splits.items() if recorded.get(name) != split.fingerprint]
    if changed:
        on_hub = f" (its commit is in {run.corpus_file}: set data.revision)" if own.revision else ""
        raise RunError(
            f"the corpus is not the one that {run.path} began with: {' and '.join(changed)} differ. Restore "
            f"the old one{on_hub}, use another run directory with --run PATH, or start over with --restart, "
            "which moves the old run aside. A new run from its weights on this corpus: "
            f"{run.adapt_command(own.path)}"
        )
