"""`mt init`: inspect a corpus, and propose a config for it and a budget."""

import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from mt.config.config import Config
from mt.config.data import DataConfig, TokenizerConfig
from mt.config.located_yaml import printable
from mt.config.sources import Delimiter, parse_columns
from mt.config.training import TrainingConfig
from mt.config.write import changed_options, config_to_yaml
from mt.data.batches.alignment import align
from mt.data.batches.dataset import encode_pairs
from mt.data.corpus import Corpus, load_corpus
from mt.data.prepare import unsegmented_hint
from mt.data.prepared_cache import aligned_places
from mt.errors import ConfigError, DataError, SplitError
from mt.preflight.budget import Budget, CorpusSample, Plan, fit_into, look_for_room, update
from mt.preflight.forecast import MOST_DROPPED, warn_of_small_splits, warn_of_validation_lengths
from mt.preflight.rule import (
    ALIGNMENT_OF_FEW,
    FEW_WORDS,
    FEW_WORDS_IN_SHORT_RUNS,
    FEWEST_ENTRIES_IF_UNSEGMENTED,
    MOST_UNKNOWN_IN_SHORT_RUNS,
    MOST_UNKNOWN_OF_FEW,
    UNKNOWN_SHARE_OF_FEW,
    aligns_subwords,
    gain_of_doubling,
    num_subwords,
    prefers_words,
)
from mt.preflight.text import (
    PAIRS_COUNTED,
    Text,
    bleu_is_always_0,
    count_unknown,
    encode_validation,
    look_at,
    num_running_words,
    spread,
    warn_of_empty_references,
)

# Options written even where they are the default; others only where they are not, or have none.
ALWAYS = {
    "data.max_length",
    "tokenizer.kind",
    "tokenizer.min_frequency",
    "tokenizer.max_size",
    "model.d_model",
    "model.num_heads",
    "model.num_encoder_layers",
    "model.num_decoder_layers",
    "model.d_ff",
    "model.dropout",
    "schedule.kind",
    "schedule.learning_rate",
    "schedule.warmup_steps",
    "schedule.total_steps",
    "training.precision",
    "training.batch_tokens",
    "training.label_smoothing",
    "training.ema_decay",
    "training.max_steps",
    "validation.every_steps",
    "checkpoint.every_steps",
}
# The fewest and the most pairs in a held-out split: more than `mt check` requires, because choosing by a hash
# is not exact, and no more than a validation has time for.
FEWEST_HELD_OUT, MOST_HELD_OUT = 140, 1000
LARGEST_HELD_OUT_FRACTION = 0.15
ALIGNMENT_WEIGHT = 0.1
# A word vocabulary counts as closed if at most this share of the held-out words is missing from it.
MOST_UNKNOWN_WORDS = 0.005
# Neither minutes nor tokens: a budget is proposed.
OPEN = Budget()


def propose_config(
    path: str,
    src: str,
    tgt: str,
    *,
    name: str | None = None,
    columns: str | None = None,
    delimiter: Delimiter = "auto",
    budget: Budget = OPEN,
) -> str:
    """A commented config for the corpus at ``path``, with a summary of the corpus and the run at the top."""
    try:
        parse_columns("src,tgt" if columns is None else columns)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    data = DataConfig(path=path, src=src, tgt=tgt, name=name, columns=columns, delimiter=delimiter)
    started = time.perf_counter()
    try:
        corpus = load_corpus(data)
    except SplitError:
        data = data.model_copy(update={"held_out_fraction": LARGEST_HELD_OUT_FRACTION})
        corpus = load_corpus(data)
    load_seconds = time.perf_counter() - started
    # If only the largest fraction was enough, a smaller one is not.
    is_largest = data.held_out_fraction == LARGEST_HELD_OUT_FRACTION
    if not is_largest and (fraction := _held_out_fraction(corpus, data)) != data.held_out_fraction:
        data = data.model_copy(update={"held_out_fraction": fraction})
        corpus = load_corpus(data)
    config, seen = _choose_tokenizer(corpus, _start(data), FEW_WORDS, MOST_UNKNOWN_OF_FEW)
    config, sample, lengths = _look_at_lengths(corpus, config, load_seconds)
    room = look_for_room(budget, config, sample)
    in_time = room.minutes is not None
    is_short = prefers_words(room.target_tokens, sample.corpus_tokens, in_time=in_time)
    if is_short and config.tokenizer.kind != "word":
        with_words, seen_of_words = _choose_tokenizer(
            corpus, _start(data), FEW_WORDS_IN_SHORT_RUNS, MOST_UNKNOWN_IN_SHORT_RUNS
        )
        if with_words.tokenizer.kind == "word":
            seen = seen_of_words
            config, sample, lengths = _look_at_lengths(corpus, with_words, load_seconds)
    is_aligned = aligns_subwords(room.target_tokens, sample.corpus_tokens, in_time=in_time)
    if is_aligned and config.tokenizer.kind != "word":
        config = update(config, training={"guided_alignment": ALIGNMENT_OF_FEW})
        sample = _aligned(sample)
    if bleu_is_always_0(corpus.validation):
        config = update(config, validation={"metric": "chrf"})
        seen.append(
            "Metric: chrF, because BLEU counts sequences of four words and no held-out target is that long."
        )
    plan = fit_into(room, config, sample)
    seen += [warning[0].upper() + warning[1:] for warning in _warnings(corpus, config, sample.text)]
    head = [
        f"{path}: {len(corpus.train):,} training pairs, "
        f"{len(corpus.validation):,} validation, {len(corpus.test):,} test.",
        *lengths,
        *seen,
        *_about_run(plan, is_proposed=budget == OPEN),
        "Options that are not listed here keep their defaults; mt config lists all options.",
    ]
    # The name of the corpus may contain characters that YAML does not allow, or that would end the comment.
    comment = [line for text in head for line in textwrap.wrap(printable(text), 100)]
    yaml = config_to_yaml(plan.config, keys=_keys(plan.config))
    return "".join(f"# {line}\n" for line in comment) + "\n" + yaml


def _warnings(corpus: Corpus, config: Config, text: Text) -> list[str]:
    """The warnings of `mt check` about what is wrong with the held-out pairs."""
    sizes = {"validation": len(corpus.validation), "test": len(corpus.test)}
    _, left_out = encode_validation(config, text)
    return [
        *warn_of_small_splits(sizes),
        *warn_of_empty_references(corpus),
        *warn_of_validation_lengths(config, left_out),
    ]


def _start(data: DataConfig) -> Config:
    """A config that only says where the corpus is; the number of steps is decided last."""
    return Config(data=data, training=TrainingConfig(max_steps=1))


def _keys(config: Config) -> set[str]:
    """The options to write: those that are decided here, and those that differ from their defaults."""
    unused = "tokenizer.max_size" if config.tokenizer.kind == "word" else "tokenizer.min_frequency"
    return (ALWAYS | changed_options(config)) - {unused}


def _held_out_fraction(corpus: Corpus, data: DataConfig) -> float:
    """The share of all pairs that makes a carved validation or test split neither too small nor too large."""
    splits = corpus.by_name()
    carved = [name for name, split in corpus.report.splits.by_name().items() if split.origin == "carved"]
    if not carved:
        return data.held_out_fraction
    num_pairs = len(corpus.train) + sum(len(splits[name]) for name in carved)
    usual = DataConfig.model_fields["held_out_fraction"].default
    fraction = min(max(usual, FEWEST_HELD_OUT / num_pairs), MOST_HELD_OUT / num_pairs)
    return min(LARGEST_HELD_OUT_FRACTION, float(f"{fraction:.2g}"))


def _choose_tokenizer(
    corpus: Corpus, config: Config, most_words: float, most_unknown: float
) -> tuple[Config, list[str]]:
    """Choose words if they are few and all known, as in generated text, or if the text is short; else BPE.

    A text is short if it has at most ``most_words`` running words on a side, and at most a share of
    ``most_unknown`` of the words in each held-out text is unknown. For a script without spaces between words,
    it is BPE of characters, with one vocabulary.
    """
    sample = spread(corpus.train, PAIRS_COUNTED)
    hint = unsegmented_hint(config, corpus.train)
    shared = hint is not None or have_common_letters(sample["src"], sample["tgt"])
    num_words = num_running_words(corpus.train)
    entries = num_subwords(num_words, shared=shared)
    if hint is not None:
        entries = max(entries, FEWEST_ENTRIES_IF_UNSEGMENTED)
    text = _as_words(corpus, config) if hint is None else None
    if text is not None:
        unknown = _share_unknown(text)
        if unknown <= MOST_UNKNOWN_WORDS and max(each.size for each in text.tokenizers) <= entries:
            # Costs 2 % of the speed, and lets names and numbers be copied.
            return update(config, training={"guided_alignment": ALIGNMENT_WEIGHT}), []
        if num_words <= most_words and unknown <= most_unknown:
            alignment = {"guided_alignment": ALIGNMENT_OF_FEW, "unknown_share": UNKNOWN_SHARE_OF_FEW}
            why = "With so little text" if num_words <= FEW_WORDS else "In so short a run"
            return update(config, training=alignment), [
                f"Tokenizer: words; up to {unknown:.1%} of those in the held-out text are unknown and will "
                f"be copied. {why} (about {num_words:,.0f} running words), words are learnt faster than "
                "subwords."
            ]
    one = "one vocabulary for both languages" if shared else "a vocabulary for each language"
    kind: Literal["bpe", "bpe_metaspace"] = "bpe" if hint is None else "bpe_metaspace"
    name, why = ("BPE", "") if hint is None else ("BPE of characters", f"; {hint.split('. ')[0]}")
    tokenizer = TokenizerConfig(kind=kind, max_size=entries, shared=shared)
    return update(config, tokenizer=tokenizer.model_dump()), [
        f"Tokenizer: {name} with at most {entries:,} entries for about {num_words:,.0f} running words, "
        f"{one}{why}."
    ]


def _as_words(corpus: Corpus, config: Config) -> Text | None:
    """The corpus with word vocabularies; None if a side has no frequent words, as in lists of names."""
    try:
        return look_at(corpus, config)
    except DataError:
        # Anything else that is wrong with the text will also fail with BPE.
        return None


def have_common_letters(src: Sequence[str], tgt: Sequence[str]) -> bool:
    """Whether most letters of each side also occur on the other side, as in English and German."""
    sides = [Counter(filter(str.isalpha, "".join(lines).lower())) for lines in (src, tgt)]
    for one, other in (sides, sides[::-1]):
        # An occasional foreign name does not make a script common.
        usual = {letter for letter, count in other.items() if 1000 * count >= other.total()}
        if 2 * sum(count for letter, count in one.items() if letter in usual) < one.total():
            return False
    return True


def _share_unknown(text: Text) -> float:
    """The largest share of running words in a held-out text that are not in the word vocabulary."""
    return max(
        count_unknown(pairs[side], tokenizer).share
        for pairs in text.evaluation.values()
        for side, _, tokenizer in text.sides
    )


def _look_at_lengths(
    corpus: Corpus, config: Config, load_seconds: float
) -> tuple[Config, CorpusSample, list[str]]:
    """Choose data.max_length so that all but one in a thousand pairs fit, and describe the text.

    A corpus of fewer pairs may also lose its longest one, but no more pairs than `mt check` accepts.
    """
    started = time.perf_counter()
    text = look_at(corpus, config)
    pairs, _ = encode_pairs(text.train, *text.tokenizers, max_length=None)
    prepare_seconds = (time.perf_counter() - started) * text.scale
    longest = np.maximum(pairs.src.lengths, pairs.tgt.lengths)
    # "lower", so that a single long line does not count in a small corpus.
    fits_most = int(np.quantile(longest, 0.999, method="lower"))
    # In a very small corpus, a single pair is a share that `mt check` warns about.
    if np.mean(longest > fits_most) > MOST_DROPPED:
        fits_most = int(longest.max())
    max_length = max(32, -(-fits_most // 16) * 16)
    src_lengths, tgt_lengths = (side.lengths[longest <= max_length] for side in (pairs.src, pairs.tgt))
    config = update(config, data={"max_length": max_length})
    kept, _ = encode_pairs(text.train, *text.tokenizers, max_length=max_length, shares=text.shares)
    sample = CorpusSample(text, kept, None, load_seconds + prepare_seconds)
    src, tgt = text.tokenizers
    return (
        config,
        _aligned(sample) if config.training.guided_alignment else sample,
        [
            f"Tokens per sentence: {src_lengths.mean():.1f} source, {tgt_lengths.mean():.1f} "
            f"target on average; {np.mean(longest <= fits_most):.1%} of the pairs have at most {fits_most}.",
            f"Vocabulary: {src.size:,} source and {tgt.size:,} target entries.",
        ],
    )


def _aligned(sample: CorpusSample) -> CorpusSample:
    """The sample with guided alignment, which also takes its time at the start of the run."""
    started = time.perf_counter()
    # Only the alignment of the whole text will be in the cache for the run.
    is_whole = sample.text.scale == 1
    places = aligned_places(sample.pairs) if is_whole else np.concatenate(list(align(sample.pairs)))
    seconds = (time.perf_counter() - started) * sample.text.scale
    return replace(sample, places=places, start_seconds=sample.start_seconds + seconds)


def _about_run(plan: Plan, *, is_proposed: bool) -> list[str]:
    """What the run costs, and the effect of halving or doubling the budget."""
    steps = plan.config.training.max_steps or 0
    lines = [
        f"The run: {steps:,} steps, {plan.target_tokens:,.0f} target tokens, {plan.num_passes:.1f} passes "
        f"over the corpus, about {plan.minutes:.1f} minutes on this machine."
    ]
    if is_proposed:
        less, more = gain_of_doubling(plan.cost_passes / 2), gain_of_doubling(plan.cost_passes)
        lines.append(
            "This budget is a proposal for a corpus of this size. " + _about_other_budgets(less, more)
        )
    return lines + plan.notes


def _about_other_budgets(less: float | None, more: float | None) -> str:
    """The effect of halving and doubling the budget, in BLEU, where that was measured."""
    measured = [
        f"{change} about {gain:.1f} BLEU"
        for change, gain in (("halving it cost", less), ("doubling it gained", more))
        if gain is not None
    ]
    if not measured:
        return "The effect of halving or doubling it has not been measured for this number of passes."
    return f"On 29,000 captions, {' and '.join(measured)}; other corpora differ."
