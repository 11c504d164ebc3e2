"""The parts of `mt check --config` on the text: corpus, samples, vocabularies, lengths, batches."""

from dataclasses import dataclass

import datasets
import numpy as np

from mt.config.config import Config
from mt.data.batches.dataset import EncodedPairs, encode_pairs
from mt.data.batches.sampler import Indices, Share
from mt.data.corpus import Corpus
from mt.data.corpus_report import cleaning_table, leak_sentence
from mt.data.prepare import make_tokenizers, refuse_nothing_left, warn_of_tokenizer
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.preflight import warnings
from mt.preflight.layout import Part, count, percent, table
from mt.preflight.text_figures import (
    count_unknown,
    describe_lengths,
    find_ceiling,
    measure_padding,
    spread,
)
from mt.wording import counted

# So much is looked at, spread evenly; all rows of the corpus are read and checked in any case.
MOST_TRAINING_PAIRS = 300_000
MOST_EVALUATION_PAIRS = 5_000
NUM_SAMPLES = 3


@dataclass(frozen=True)
class Text:
    """What is looked at of the corpus, and its tokenizers."""

    train: datasets.Dataset
    evaluation: dict[str, datasets.Dataset]
    tokenizers: tuple[Tokenizer, Tokenizer]
    """Of source and target."""
    shares: tuple[Share, ...]
    """Of the sources of the training pairs, where all of these are looked at."""
    scale: float
    """Training pairs for each that is looked at."""
    validation_scale: float
    """Validation pairs for each that is looked at."""

    @property
    def sides(self) -> list[tuple[str, str, Tokenizer]]:
        """Of each side the column, the name, and the tokenizer."""
        return [("src", "source", self.tokenizers[0]), ("tgt", "target", self.tokenizers[1])]


def corpus_part(corpus: Corpus) -> Part:
    """Pairs of each split, what was dropped, what leaked."""
    splits = corpus.report.splits
    lines = table(
        [
            (name, count(split.pairs), "pairs", f"{split.origin}, {', '.join(split.parts)}")
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
            lines.append(f"{count(MOST_EVALUATION_PAIRS)} pairs of the {name} split are looked at")
    return Part("corpus", lines, [*warnings.warn_of_small_splits(sizes), *([leaks] if has_leaked else [])])


def look_at(corpus: Corpus, config: Config) -> Text:
    """Choose what is looked at, and make the tokenizers from it."""
    warn_of_tokenizer(config, corpus.train)
    train = spread(corpus.train, MOST_TRAINING_PAIRS)
    validation = spread(corpus.validation, MOST_EVALUATION_PAIRS)
    return Text(
        train,
        {"validation": validation, "test": spread(corpus.test, MOST_EVALUATION_PAIRS)},
        make_tokenizers(train, config),
        corpus.shares if len(train) == len(corpus.train) else (),
        len(corpus.train) / len(train),
        len(corpus.validation) / len(validation),
    )


def sample_part(text: Text) -> Part:
    """A few pairs, as tokens and decoded again."""
    lines = []
    for pair in spread(text.evaluation["validation"], NUM_SAMPLES):
        for side, name, tokenizer in text.sides:
            ids = tokenizer.encode(pair[side])
            lines += table(
                [
                    (name, pair[side]),
                    ("tokens", " ".join(tokenizer.tokens(ids))),
                    ("decoded", tokenizer.decode(ids)),
                ]
            )
    return Part("samples from the validation split", lines)


def vocabulary_part(text: Text) -> Part:
    """Sizes, unknown words, and the score that the vocabulary permits."""
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
    lines = table(rows, right=True)
    signature = ""
    for where, ceiling in ceilings.items():
        signature = ceiling.bleu.signature
        lines.append(
            f"highest BLEU it permits on the {where}: {ceiling.bleu.value:.2f} "
            f"({count(ceiling.num_changed)} of {count(ceiling.num_lines)} lines come back changed)"
        )
    lines.append(f"signature: {signature}")
    sizes = " and ".join(f"{count(tokenizer.size)} {name}" for _, name, tokenizer in text.sides)
    return Part(f"vocabulary: {sizes} entries", lines, list(warnings.warn_of_vocabulary(unknown, ceilings)))


def length_part(config: Config, text: Text) -> tuple[EncodedPairs, Part]:
    """The pairs that are trained on, and how long sentences are.

    Raises:
        DataError: If no pair is left.
    """
    max_length = config.data.max_length
    everything, _ = encode_pairs(text.train, *text.tokenizers, max_length=None)
    pairs, dropped = encode_pairs(text.train, *text.tokenizers, max_length=max_length, shares=text.shares)
    rows = [("in tokens, with the end mark", "mean", "95 %", "longest", f"beyond {max_length}")]
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
    lines = table(rows, right=True)
    lines += [
        f"dropped as {reason}: {counted(round(number * text.scale), 'pair')}"
        for reason, number in dropped.items()
        if number
    ]
    longest = max(int(everything.src.lengths.max()), int(everything.tgt.lengths.max()))
    found_wrong = warnings.warn_of_lengths(config, dropped["too long"], len(everything), longest)
    return pairs, Part("lengths", lines, list(found_wrong))


def batch_part(pairs: EncodedPairs, batches: list[Indices], scale: float) -> Part:
    """How many, and how much of them is padding."""
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
    return Part("batches", table(rows))
