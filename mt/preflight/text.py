"""The sections of `mt check --config` about the text: corpus, samples, vocabularies, lengths, batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import datasets
import numpy as np
import numpy.typing as npt

from mt.config.config import Config
from mt.data.batches.dataset import EncodedPairs, encode_pairs
from mt.data.batches.sampler import Indices, Share
from mt.data.corpus import Corpus
from mt.data.corpus_report import cleaning_table, leak_sentence
from mt.data.prepare import (
    make_tokenizers,
    refuse_no_validation_loss,
    refuse_nothing_left,
    warn_of_tokenizer,
)
from mt.data.tokenizers.tokenizer import Tokenizer, normalise_spacing
from mt.data.unsegmented_scripts import split_letters
from mt.display import aligned, counted, origin_of_split
from mt.evaluation.scores import Score, score_translations
from mt.preflight.forecast import (
    warn_of_lengths,
    warn_of_small_splits,
    warn_of_validation_lengths,
    warn_of_vocabulary,
)
from mt.preflight.layout import CheckSection, count, percent
from mt.special_tokens import UNK, UNK_ID

# At most this many pairs are examined, spread evenly; all rows of the corpus are read and checked anyway.
MOST_TRAINING_PAIRS = 300_000
MOST_EVALUATION_PAIRS = 5_000
NUM_SAMPLES = 3
# This many pairs are enough to count words and letters.
PAIRS_COUNTED = 10_000
# A private-use character, which no reference contains.
WRONG_WORD = "\uf8fe"


@dataclass(frozen=True)
class Text:
    """The examined part of a corpus, and its tokenizers."""

    train: datasets.Dataset
    evaluation: dict[str, datasets.Dataset]
    tokenizers: tuple[Tokenizer, Tokenizer]
    """The source and the target tokenizer."""
    shares: tuple[Share, ...]
    """The shares of the sources of a mix in the examined training pairs."""
    scale: float
    """The number of training pairs divided by those examined."""
    validation_scale: float
    """The number of validation pairs divided by those examined."""

    @property
    def sides(self) -> list[tuple[str, str, Tokenizer]]:
        """The column, the name and the tokenizer of each side."""
        return [("src", "source", self.tokenizers[0]), ("tgt", "target", self.tokenizers[1])]


@dataclass(frozen=True)
class Unknown:
    """Words of a text that are not in the vocabulary: tokens (running words) and types (different words)."""

    num_tokens: int
    num_unknown_tokens: int
    num_types: int
    num_unknown_types: int

    @property
    def share(self) -> float:
        """The share of running words that are unknown, from 0 to 1."""
        return self.num_unknown_tokens / max(self.num_tokens, 1)

    @property
    def share_of_types(self) -> float:
        """The share of different words that are unknown, from 0 to 1."""
        return self.num_unknown_types / max(self.num_types, 1)


@dataclass(frozen=True)
class Ceiling:
    """The score of a model that makes no mistakes, whose translations go through the tokenizer."""

    bleu: Score
    num_lines: int
    num_changed: int
    """Lines that are different after encoding and decoding, apart from spacing."""


@dataclass(frozen=True)
class Lengths:
    """Lengths of the sentences of one side, in tokens, including EOS."""

    mean: float
    most: int
    """The 95th percentile."""
    longest: int


@dataclass(frozen=True)
class Padding:
    """The share of padding in the training batches on each side, from 0 to 1."""

    src: float
    tgt: float


def corpus_section(corpus: Corpus) -> CheckSection:
    """Pairs in each split, what was dropped, and what leaked."""
    splits = corpus.report.splits
    lines = aligned(
        [
            (name, count(split.pairs), "pairs", f"{origin_of_split(split.origin)}, {', '.join(split.parts)}")
            for name, split in splits.by_name().items()
        ]
    )
    leaks, has_leaked = leak_sentence(corpus.report)
    lines += [*cleaning_table(splits.train, {}).splitlines(), leaks]
    if len(corpus.train) > MOST_TRAINING_PAIRS:
        lines.append(f"what follows is estimated from {count(MOST_TRAINING_PAIRS)} of the training pairs")
    sizes = {"validation": splits.validation.pairs, "test": splits.test.pairs}
    for name, num_pairs in sizes.items():
        if num_pairs > MOST_EVALUATION_PAIRS:
            lines.append(f"{count(MOST_EVALUATION_PAIRS)} pairs of the {name} split are examined")
    warnings = [*warn_of_small_splits(sizes), *warn_of_empty_references(corpus)]
    return CheckSection("corpus", lines, [*warnings, *([leaks] if has_leaked else [])])


def warn_of_empty_references(corpus: Corpus) -> list[str]:
    """Warn of held-out pairs without a target, which `mt evaluate` refuses after training."""
    warnings = []
    for name, pairs in (("validation", corpus.validation), ("test", corpus.test)):
        empty = [line for line, text in enumerate(pairs["tgt"], start=1) if not text.strip()]
        if empty:
            warnings.append(
                f"the {name} split cannot be scored, because {counted(len(empty), 'target')} of it "
                f"{'is' if len(empty) == 1 else 'are'} empty: pair {empty[0]}"
                f"{' is the first' if len(empty) > 1 else ''}. Add a translation, or remove the pair."
            )
    return warnings


def look_at(corpus: Corpus, config: Config, tokenizers: tuple[Tokenizer, Tokenizer] | None = None) -> Text:
    """Choose the part to examine, and train the tokenizers on it unless they are given."""
    train = spread(corpus.train, MOST_TRAINING_PAIRS)
    if tokenizers is None:
        warn_of_tokenizer(config, corpus.train)
        tokenizers = make_tokenizers(train, config)
    validation = spread(corpus.validation, MOST_EVALUATION_PAIRS)
    return Text(
        train,
        {"validation": validation, "test": spread(corpus.test, MOST_EVALUATION_PAIRS)},
        tokenizers,
        _shares_of_spread(corpus.shares, len(corpus.train), len(train)),
        len(corpus.train) / len(train),
        len(corpus.validation) / len(validation),
    )


def sample_section(text: Text) -> CheckSection:
    """A few pairs, as tokens and decoded again."""
    lines = []
    for pair in spread(text.evaluation["validation"], NUM_SAMPLES):
        for side, name, tokenizer in text.sides:
            ids = tokenizer.encode(pair[side])
            lines += aligned(
                [
                    (name, pair[side]),
                    ("tokens", " ".join(tokenizer.tokens(ids))),
                    ("decoded", tokenizer.decode(ids)),
                ]
            )
    return CheckSection("samples from the validation split", lines)


def vocabulary_section(config: Config, text: Text) -> CheckSection:
    """Vocabulary sizes, unknown words, and the highest score that the vocabulary permits."""
    unknown = {
        f"{split} {name}s": count_unknown(pairs[side], tokenizer)
        for split, pairs in text.evaluation.items()
        for side, name, tokenizer in text.sides
    }
    ceilings = {
        f"{split} split": find_ceiling(pairs["tgt"], text.tokenizers[1])
        for split, pairs in text.evaluation.items()
    }
    rows = [("unknown words", "of all running words", "of all different words")]
    for where, found in unknown.items():
        tokens = f"({count(found.num_unknown_tokens)} of {count(found.num_tokens)})"
        types = f"({count(found.num_unknown_types)} of {count(found.num_types)})"
        rows.append((where, f"{percent(found.share)} {tokens}", f"{percent(found.share_of_types)} {types}"))
    lines = aligned(rows, num_texts=1)
    signature = ""
    for where, ceiling in ceilings.items():
        signature = ceiling.bleu.signature
        lines.append(
            f"highest BLEU it permits on the {where}: {ceiling.bleu.value:.2f} "
            f"({count(ceiling.num_changed)} of {count(ceiling.num_lines)} lines change when decoded again)"
        )
    lines.append(f"signature: {signature}")
    shares = {where: found.share for where, found in unknown.items()}
    # Sentences of fewer than four words score below 100 even against themselves.
    permitted = {where: found.bleu.value if found.num_changed else 100.0 for where, found in ceilings.items()}
    num_words = num_running_words(text.train) * text.scale
    sizes = " and ".join(f"{count(tokenizer.size)} {name}" for _, name, tokenizer in text.sides)
    warnings = list(warn_of_vocabulary(shares, permitted, num_words))
    if config.validation.metric == "bleu" and bleu_is_always_0(text.evaluation["validation"]):
        warnings.append(
            "BLEU is 0 for any translation of the validation split, because it counts sequences of four "
            "words and no target is that long. Set validation.metric=chrf, so that the best checkpoint can "
            "be found."
        )
    return CheckSection(f"vocabulary: {sizes} entries", lines, warnings)


def length_section(config: Config, text: Text) -> tuple[EncodedPairs, CheckSection]:
    """The training pairs, and the lengths of sentences."""
    max_length = config.data.max_length
    everything, _ = encode_pairs(text.train, *text.tokenizers, max_length=None)
    pairs, dropped = encode_pairs(text.train, *text.tokenizers, max_length=max_length, shares=text.shares)
    rows = [("in tokens, with EOS", "mean", "95 %", "longest", f"beyond {max_length}")]
    for side, name, _ in text.sides:
        lengths = getattr(everything, side).lengths
        found = describe_lengths(lengths)
        rows.append(
            (
                f"training {name}s",
                f"{found.mean:.1f}",
                count(found.most),
                count(found.longest),
                percent(float(np.mean(lengths > max_length))),
            )
        )
    refuse_nothing_left(pairs, dropped, config)
    validation, left_out = encode_validation(config, text)
    num_examined = len(text.evaluation["validation"])
    # The rest of the split may have a loss even if no pair of a sample does.
    if text.validation_scale == 1:
        refuse_no_validation_loss(validation, num_examined, config)
    lines = aligned(rows, num_texts=1)
    lines += [
        f"dropped as {reason}: {counted(round(number * text.scale), 'pair')}"
        for reason, number in dropped.items()
        if number
    ]
    if left_out:
        about = "" if text.validation_scale == 1 else "about "
        number = counted(round(left_out * num_examined * text.validation_scale), "pair")
        lines.append(f"left out of the validation loss: {about}{number} ({percent(left_out)})")
    longest = max(int(everything.src.lengths.max()), int(everything.tgt.lengths.max()))
    found_wrong = [
        *warn_of_lengths(config, dropped["too long"], len(everything), longest),
        *warn_of_validation_lengths(config, left_out),
    ]
    return pairs, CheckSection("lengths", lines, found_wrong)


def encode_validation(config: Config, text: Text) -> tuple[EncodedPairs, float]:
    """The examined validation pairs that have a loss, and the share, from 0 to 1, of those that have none."""
    examined = text.evaluation["validation"]
    pairs, _ = encode_pairs(examined, *text.tokenizers, max_length=config.data.max_length)
    return pairs, (len(examined) - len(pairs)) / len(examined)


def batch_section(pairs: EncodedPairs, batches: list[Indices], scale: float) -> CheckSection:
    """The number of batches, and their padding."""
    padding = measure_padding(pairs, batches)
    mean = sum(map(len, batches)) / len(batches)
    rows = [
        (
            "in an epoch",
            f"{count(len(batches) * scale)} batch{'' if len(batches) == 1 else 'es'}, of "
            f"{counted(round(mean), 'pair')} on average",
        ),
        ("padding", f"{percent(padding.src)} of the source, {percent(padding.tgt)} of the target"),
    ]
    return CheckSection("batches", aligned(rows))


def spread(pairs: datasets.Dataset, most: int) -> datasets.Dataset:
    """All pairs, or ``most`` of them, spread evenly."""
    if len(pairs) <= most:
        return pairs
    return pairs.select(_spread_rows(len(pairs), most))


def _spread_rows(num_pairs: int, number: int) -> list[int]:
    return [num_pairs * row // number for row in range(number)]


def _shares_of_spread(shares: Sequence[Share], num_pairs: int, number: int) -> tuple[Share, ...]:
    """The shares of a mix among the ``number`` pairs that `spread` selects."""
    ends = np.cumsum([share.num_pairs for share in shares], dtype=np.int64)
    counts = np.diff(np.searchsorted(_spread_rows(num_pairs, number), ends), prepend=0)
    return tuple(Share(count, share.weight) for count, share in zip(counts.tolist(), shares, strict=True))


def num_running_words(pairs: datasets.Dataset) -> float:
    """Words on an average side, or characters where a script is unsegmented; an estimate for many pairs.

    A few lines that are longer than nearly all others count only as much as those: they will be dropped.
    """
    sample = spread(pairs, PAIRS_COUNTED)
    sides = [[len(split_letters(text).split()) for text in sample[side]] for side in ("src", "tgt")]
    counts = np.mean(sides, axis=0)
    return len(pairs) * float(np.minimum(counts, np.quantile(counts, 0.999, method="lower")).mean())


def count_unknown(texts: Sequence[str], tokenizer: Tokenizer) -> Unknown:
    """Count the words of ``texts`` that are UNK to the tokenizer."""
    num_tokens = num_unknown = 0
    types: set[str] = set()
    unknown_types: set[str] = set()
    for text in texts:
        ids, words = tokenizer.encode_with_words(text)
        unknown = [word for token_id, word in zip(ids, words, strict=True) if token_id == UNK_ID]
        num_tokens += len(ids)
        num_unknown += len(unknown)
        types.update(words)
        unknown_types.update(unknown)
    return Unknown(num_tokens, num_unknown, len(types), len(unknown_types))


def bleu_is_always_0(pairs: datasets.Dataset) -> bool:
    """Whether even the targets themselves score 0 BLEU, because none has four words."""
    references = spread(pairs, MOST_EVALUATION_PAIRS)["tgt"]
    return score_translations(references, references)["bleu"].value == 0


def find_ceiling(references: Sequence[str], tokenizer: Tokenizer) -> Ceiling:
    """Encode and decode the references, and score them against themselves.

    An unknown word counts as one wrong word, because the model outputs another word instead of UNK.
    """
    decoded = []
    num_changed = 0
    for reference, ids in zip(references, tokenizer.encode_batch(references), strict=True):
        text = tokenizer.decode(ids)
        num_changed += normalise_spacing(text) != normalise_spacing(reference)
        # sacreBLEU would split <unk> into three.
        decoded.append(text.replace(UNK, WRONG_WORD) if UNK_ID in ids else text)
    return Ceiling(score_translations(decoded, references)["bleu"], len(references), num_changed)


def describe_lengths(lengths: npt.NDArray[np.integer]) -> Lengths:
    """Mean, 95th percentile and maximum of at least one length."""
    most = int(np.quantile(lengths, 0.95, method="inverted_cdf"))
    return Lengths(float(lengths.mean()), most, int(lengths.max()))


def measure_padding(pairs: EncodedPairs, batches: Sequence[Indices]) -> Padding:
    """How much of the padded batches that `collate` makes is padding."""

    def waste(lengths: npt.NDArray[np.integer]) -> float:
        positions = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
        tokens = sum(int(lengths[batch].sum()) for batch in batches)
        return 1 - tokens / positions

    return Padding(waste(pairs.src.lengths), waste(pairs.tgt.lengths))
