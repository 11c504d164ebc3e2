"""`mt init`: inspect a corpus, and propose a config for it and a budget."""

import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.located_yaml import printable
from mt.config.sources import Delimiter, parse_columns
from mt.config.training import TrainingConfig
from mt.config.write import changed_options, config_to_yaml
from mt.data.corpus import Corpus, load_corpus
from mt.data.prepare import unsegmented_hint
from mt.errors import ConfigError, DataError, SplitError
from mt.preflight.budget import Budget, Plan, Sample, afford, make_plan, update
from mt.preflight.rule import (
    ALIGNMENT_OF_CLOSED,
    ALIGNMENT_OF_FEW,
    FEW_WORDS,
    FEWEST_HELD_OUT,
    LARGEST_HELD_OUT_FRACTION,
    MOST_HELD_OUT,
    MOST_UNKNOWN_OF_CLOSED,
    UNKNOWN_SHARE_OF_FEW,
    gain_of_doubling,
    num_subwords,
    words_suffice,
)
from mt.preflight.text import (
    PAIRS_COUNTED,
    bleu_is_always_0,
    count_unknown,
    look_at,
    num_running_words,
    share_without_loss,
    spread,
)
from mt.preflight.trial import measure_size
from mt.preflight.warnings import of_held_out_pairs, of_validation_lengths

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
# Neither minutes nor tokens: a budget is proposed.
OPEN = Budget()


class Proposal(NamedTuple):
    """A config for a corpus and a budget."""

    yaml: str
    """The commented config, with a summary of the corpus and the run at the top."""
    summary: list[str]
    """Passes, steps, model, unknown words, and the effect of another budget: a line each."""


class _Tokenized(NamedTuple):
    """A config whose tokenizer is chosen, and the reason, if there is more to say than its name."""

    config: Config
    unknown_share: float
    """The largest share of unknown running words in a held-out text, from 0 to 1."""
    why: str = ""


def propose_config(
    path: str,
    src: str,
    tgt: str,
    *,
    name: str | None = None,
    columns: str | None = None,
    delimiter: Delimiter = "auto",
    budget: Budget = OPEN,
) -> Proposal:
    """Propose a config for the corpus at ``path``."""
    try:
        parse_columns("src,tgt" if columns is None else columns)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    data = _held_out(DataConfig(path=path, src=src, tgt=tgt, name=name, columns=columns, delimiter=delimiter))
    started = time.perf_counter()
    # Again, as the run will load it: a large corpus is cached now.
    corpus = load_corpus(data)
    load_seconds = time.perf_counter() - started
    start = Config(data=data, training=TrainingConfig(max_steps=1))
    num_words = num_running_words(corpus.train)
    subwords = _subwords(corpus, start, num_words)
    words = _words(corpus, start, num_words, subwords.config.tokenizer.max_size)
    chosen = words or subwords
    sample = Sample.of(corpus, chosen.config, load_seconds)
    minutes, affordable = afford(budget, sample)
    if words and words.why and num_words > FEW_WORDS and not affordable.prefers_words(sample.corpus_tokens):
        chosen = subwords
        sample = Sample.of(corpus, chosen.config, load_seconds)
    if chosen is subwords and affordable.aligns_subwords(sample.corpus_tokens):
        sample = sample.aligned(ALIGNMENT_OF_FEW)
    plan = make_plan(budget, minutes, affordable, sample)
    config, notes = plan.config, [chosen.why] if chosen.why else []
    if bleu_is_always_0(corpus.validation):
        config = update(config, validation={"metric": "chrf"})
        notes.append(
            "Metric: chrF, because BLEU counts sequences of four words and no held-out target is that long."
        )
    warnings = [
        *of_held_out_pairs(config, corpus),
        *of_validation_lengths(config, share_without_loss(config, sample.text)),
    ]
    others = _about_other_budgets(plan)
    src_entries, tgt_entries = (f"{tokenizer.size:,}" for tokenizer in sample.text.tokenizers)
    head = [
        f"{path}: {len(corpus.train):,} training pairs, "
        f"{len(corpus.validation):,} validation, {len(corpus.test):,} test.",
        sample.about_lengths,
        f"Vocabulary: {src_entries} source and {tgt_entries} target entries.",
        *notes,
        f"The run: {plan.num_steps:,} steps, {plan.num_steps * plan.pace.tokens_per_step:,.0f} target "
        f"tokens, {plan.num_passes:.1f} passes over the corpus, about {plan.minutes:.1f} minutes on this "
        "machine.",
        *([f"This budget is a proposal for a corpus of this size. {others}"] if budget == OPEN else []),
        *plan.notes,
        *(warning[0].upper() + warning[1:] for warning in warnings),
        "Options that are not listed here keep their defaults; mt config lists all options.",
    ]
    # The name of the corpus may contain characters that YAML does not allow, or that would end the comment.
    comment = [line for text in head for line in textwrap.wrap(printable(text), 100)]
    # One of the two has no effect.
    unused = "tokenizer.max_size" if config.tokenizer.kind == "word" else "tokenizer.min_frequency"
    yaml = config_to_yaml(config, keys=(ALWAYS | changed_options(config)) - {unused})
    return Proposal(
        "".join(f"# {line}\n" for line in comment) + "\n" + yaml,
        _summary(plan, sample, chosen.unknown_share, others),
    )


def _held_out(data: DataConfig) -> DataConfig:
    """Choose the share of the pairs for splits that the corpus lacks: neither too few pairs nor too many."""
    try:
        corpus = load_corpus(data)
    except SplitError:
        # Larger than the usual one; a still larger one would leave too little to train on.
        return data.model_copy(update={"held_out_fraction": LARGEST_HELD_OUT_FRACTION})
    splits = corpus.by_name()
    carved = [name for name, split in corpus.report.splits.by_name().items() if split.origin == "carved"]
    if not carved:
        return data
    num_pairs = len(corpus.train) + sum(len(splits[name]) for name in carved)
    fraction = min(max(data.held_out_fraction, FEWEST_HELD_OUT / num_pairs), MOST_HELD_OUT / num_pairs)
    fraction = min(LARGEST_HELD_OUT_FRACTION, float(f"{fraction:.2g}"))
    return data.model_copy(update={"held_out_fraction": fraction})


def _subwords(corpus: Corpus, start: Config, num_words: float) -> _Tokenized:
    """BPE, of characters and with one vocabulary for a script without spaces between words."""
    sample = spread(corpus.train, PAIRS_COUNTED)
    hint = unsegmented_hint(start, corpus.train)
    shared = hint is not None or have_common_letters(sample["src"], sample["tgt"])
    entries = num_subwords(num_words, shared=shared, unsegmented=hint is not None)
    one = "one vocabulary for both languages" if shared else "a vocabulary for each language"
    kind, name, why = ("bpe", "BPE", "")
    if hint is not None:
        kind, name, why = ("bpe_metaspace", "BPE of characters", f"; {hint.split('. ')[0]}")
    return _Tokenized(
        update(start, tokenizer={"kind": kind, "max_size": entries, "shared": shared}),
        0.0,
        f"Tokenizer: {name} with at most {entries:,} entries for about {num_words:,.0f} running words, "
        f"{one}{why}.",
    )


def _words(corpus: Corpus, start: Config, num_words: float, num_subwords: int) -> _Tokenized | None:
    """Words if they are few and all known, as in generated text, or if that is best in a short run."""
    if unsegmented_hint(start, corpus.train) is not None:
        return None
    try:
        text = look_at(corpus, start)
    except DataError:
        # No word is frequent, as in lists of names. Anything else will also be wrong with subwords.
        return None
    unknown = max(
        count_unknown(pairs[side], tokenizer).share
        for pairs in text.evaluation.values()
        for side, _, tokenizer in text.sides
    )
    sizes = [tokenizer.size for tokenizer in text.tokenizers]
    if unknown <= MOST_UNKNOWN_OF_CLOSED and max(sizes) <= num_subwords:
        # Costs 2 % of the speed, and lets names and numbers be copied.
        return _Tokenized(update(start, training={"guided_alignment": ALIGNMENT_OF_CLOSED}), unknown)
    if not words_suffice(num_words, unknown, is_short=True):
        return None
    alignment = {"guided_alignment": ALIGNMENT_OF_FEW, "unknown_share": UNKNOWN_SHARE_OF_FEW}
    short = "With so little text" if num_words <= FEW_WORDS else "In so short a run"
    return _Tokenized(
        update(start, training=alignment),
        unknown,
        f"Tokenizer: words; up to {unknown:.1%} of those in the held-out text are unknown and will be "
        f"copied. {short} (about {num_words:,.0f} running words), words are learnt faster than subwords.",
    )


def have_common_letters(src: Sequence[str], tgt: Sequence[str]) -> bool:
    """Whether most letters of each side also occur on the other side, as in English and German."""
    sides = [Counter(filter(str.isalpha, "".join(lines).lower())) for lines in (src, tgt)]
    for one, other in (sides, sides[::-1]):
        # An occasional foreign name does not make a script common.
        usual = {letter for letter, count in other.items() if 1000 * count >= other.total()}
        if 2 * sum(count for letter, count in one.items() if letter in usual) < one.total():
            return False
    return True


def _about_other_budgets(plan: Plan) -> str:
    """The effect of halving and doubling the budget, in BLEU, where that was measured."""
    less, more = gain_of_doubling(plan.cost_passes / 2), gain_of_doubling(plan.cost_passes)
    measured = [
        f"{change} about {gain:.1f} BLEU"
        for change, gain in (("halving it cost", less), ("doubling it gained", more))
        if gain is not None
    ]
    if not measured:
        return "The effect of halving or doubling it has not been measured for this number of passes."
    return f"On 29,000 captions, {' and '.join(measured)}; other corpora differ."


def _summary(plan: Plan, sample: Sample, unknown_share: float, others: str) -> list[str]:
    config = plan.config
    model = config.model
    num_parameters = measure_size(config, *sample.text.tokenizers).num_parameters
    if config.tokenizer.kind == "word":
        copied = ", and are copied" if config.copies_words else ""
        unknown = f"up to {unknown_share:.1%} of the words in the held-out text{copied}"
    else:
        unknown = "no words, because subwords spell them"
    layers = f"{model.num_encoder_layers} + {model.num_decoder_layers} layers of width {model.d_model}"
    r_drop = ", with R-Drop" if config.training.r_drop else ""
    return [
        f"passes   {plan.num_passes:.1f} over the corpus, in about {plan.minutes:.1f} minutes",
        f"steps    {plan.num_steps:,} of {config.training.batch_tokens:,} tokens{r_drop}",
        f"model    {num_parameters:,} parameters: {layers}",
        f"unknown  {unknown}",
        f"budget   {others}",
    ]
