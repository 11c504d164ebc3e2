"""`mt init`: inspect a corpus, and propose a config for it and a budget."""

import math
import textwrap
import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple, Self

from mt.config.config import Config
from mt.config.data import DataConfig
from mt.config.training import TrainingConfig
from mt.config.write import changed_options, config_to_yaml
from mt.data.corpus import Corpus, load_corpus
from mt.data.suspicions import small_splits, unsegmented_hint
from mt.device import choose_device
from mt.display import one_line
from mt.errors import ConfigError, DataError, SplitError
from mt.preflight import rule
from mt.preflight.plan import Plan, fit
from mt.preflight.text import (
    PAIRS_COUNTED,
    bleu_is_always_0,
    evenly_spaced_pairs,
    examine,
    most_unknown,
    num_running_words,
    shown_directions,
    warn_of_held_out_pairs,
)
from mt.preflight.trial import Sample, fill_device, measure, take_sample

if TYPE_CHECKING:
    from mt.preflight.student import Student

# Options written even where they are the default; others only where they are not, or have none.
ALWAYS = """
data.max_length tokenizer.kind tokenizer.min_frequency tokenizer.max_size model.d_model model.num_heads
model.num_encoder_layers model.num_decoder_layers model.d_ff model.dropout schedule.kind
schedule.learning_rate schedule.warmup_steps schedule.total_steps training.precision training.batch_tokens
training.label_smoothing training.ema_decay validation.every_steps checkpoint.every_steps
"""
AS_WRITTEN = "In a share of the pairs, text becomes what people write (as_written)."
NOT_AS_WRITTEN = (
    "The budget is too short to learn, besides, text as people write it: as_written changes nothing."
)


class Proposal(NamedTuple):
    """A config for a corpus and a budget."""

    yaml: str
    """The commented config, which begins with what was seen of the corpus, the summary, and warnings."""
    summary: list[str]
    """Passes, steps, model and unknown words: a line for each."""

    @classmethod
    def of(cls, config: Config, keys: Set[str], head: Sequence[str], summary: list[str]) -> Self:
        """The config with these options, after a comment with ``head``."""
        # The name of the corpus may contain characters that YAML does not allow, or that would end it.
        comment = [line for text in head for line in textwrap.wrap(one_line(text), 100)]
        yaml = "".join(f"# {line}\n" for line in comment) + "\n" + config_to_yaml(config, keys=keys)
        return cls(yaml, summary)


Tokenized = tuple[Config, str]
"""A config whose tokenizer is chosen, and why, if there is more to say than its name."""


def propose_config(
    data: DataConfig, minutes: float | None = None, student: "Student | None" = None
) -> Proposal:
    """Propose a config for a corpus, and a budget if none is given; perhaps that of a student."""
    writing_seconds = student.writing_seconds if student else 0.0
    if minutes is not None and 60 * minutes <= writing_seconds:
        least = writing_seconds / 60
        raise ConfigError(
            f"writing the targets alone takes {least:.1f} minutes: give more than that as --minutes, or "
            "fewer pairs."
        )
    corpus, data, load_seconds = _load(data)
    start = Config(data=data, training=TrainingConfig(max_steps=1, precision="mixed"))
    if len(data.directions) > 1:
        start = start.with_options(validation={"over": "all"})
    num_words = num_running_words(corpus.train)
    shown = sum(share.num_pairs * share.weight for share in corpus.shares) / len(corpus.train)
    num_tokens = shown * (num_words + len(corpus.train))
    hint = unsegmented_hint(start, corpus)
    subwords = _subwords(corpus, start, num_words, hint)
    # In one model of several languages, an unknown word would be copied from the wrong one.
    has_words = hint is None and len(data.directions) == 1
    words = _words(corpus, start, num_words, subwords[0].tokenizer.max_size) if has_words else None
    is_generated = words and words[0].training.guided_alignment == rule.ALIGNMENT_OF_CLOSED
    always = is_generated or num_words <= rule.FEW_WORDS
    take = cache(partial(take_sample, corpus, load_seconds=load_seconds))

    def choose(rate: float) -> tuple[Sample, str, float]:
        """The settings and minutes where the usual model is trained on ``rate`` target tokens per second."""
        budget = minutes
        if budget is None:
            budget = rule.sensible_minutes(num_tokens, rate) + math.ceil(writing_seconds / 60)
        run_tokens = (60 * budget - writing_seconds) * rate
        # A run learns more from words if it is short, or if the text is short or generated.
        config, why = words if words and (always or rule.prefers_words(run_tokens, num_tokens)) else subwords
        is_aligned = student is not None or rule.aligns_subwords(run_tokens, num_tokens)
        if config.tokenizer.kind != "word" and is_aligned:
            config = config.with_options(**rule.aligned(rule.ALIGNMENT_OF_FEW))
        sample = take(config)
        longest, num_entries = sample.config.data.max_length, sample.text.tokenizers.tgt.size
        is_aligned = config.training.lexicon_start
        options = rule.choose(run_tokens, sample.corpus_tokens, num_entries, longest, is_aligned=is_aligned)
        config = sample.config.with_options(**options)
        if student is not None:
            config = config.model_copy(update={"model": student.shape(config.model, sample)})
        return replace(sample, config=config), why, budget

    device = choose_device(start.training.device)
    usual, why, budget = choose(rule.USUAL_RATES[device.type])
    sample = fill_device(usual, device)
    pace = measure(sample)
    step_seconds, forward_seconds = pace.token_seconds
    best, why, budget = choose(cost_of(usual) / step_seconds)
    if best.config != usual.config:
        sample = fill_device(best, device)
        cost = cost_of(best) / cost_of(usual)
        seconds = cost * step_seconds, cost * forward_seconds
        pace = measure(sample, seconds if sample is best else None)
    pace = replace(pace, start_seconds=pace.start_seconds + writing_seconds)
    plan = fit(sample.config, budget, pace)
    config, notes = plan.config, [why]
    if not is_generated and student is None:
        changed = rule.as_written(plan.num_passes, has_words=config.tokenizer.kind == "word")
        config = config.with_options(**changed)
        notes.append(AS_WRITTEN if changed else NOT_AS_WRITTEN)
    if bleu_is_always_0(corpus.validation):
        config = config.with_options(validation={"metric": "chrf"})
        notes.append(
            "Metric: chrF, because BLEU counts sequences of four words and no held-out target is that long."
        )
    summary = _summary(plan, sample) + (student.summary if student else [])
    warnings = [*small_splits(corpus), *warn_of_held_out_pairs(corpus)]
    summary += [f"warning  {warning}" for warning in warnings]
    if minutes is None:
        notes.append("This budget is a proposal for a corpus of this size.")
    head = [
        f"{data.path}: {len(corpus.train):,} training pairs, "
        f"{len(corpus.validation):,} validation, {len(corpus.test):,} test.",
        *_about_directions(corpus, data),
        *_about_text(sample),
        *summary,
        *notes,
        plan.note,
        "Options that are not listed here keep their defaults; mt config lists all options.",
    ]
    keys = changed_options(config).union(ALWAYS.split())
    # One of the two has no effect.
    keys.discard("tokenizer.max_size" if config.tokenizer.kind == "word" else "tokenizer.min_frequency")
    return Proposal.of(config, keys, head, summary)


def _load(data: DataConfig) -> tuple[Corpus, DataConfig, float]:
    """Load the corpus, with splits of a sensible size if it has none, and return the seconds, too."""
    started = time.perf_counter()
    try:
        corpus = load_corpus(data)
    except SplitError:
        # Larger than the usual one; a still larger one would leave too little to train on.
        fraction = rule.LARGEST_HELD_OUT_FRACTION
    else:
        splits = [*corpus.report.splits.values()]
        for source in corpus.report.sources:
            splits += source.held_out.values()
        carved = [split.pairs for split in splits if split.origin == "carved"]
        # Of each direction, on average: a source of another one is split likewise.
        num_pairs = (len(corpus.train) + sum(carved)) / len(data.directions)
        fewest, most = rule.FEWEST_HELD_OUT / num_pairs, rule.MOST_HELD_OUT / num_pairs
        fraction = float(f"{min(max(data.held_out_fraction, fewest), most):.2g}")
        fraction = min(rule.LARGEST_HELD_OUT_FRACTION, fraction)
        if not carved or fraction == data.held_out_fraction:
            return corpus, data, time.perf_counter() - started
    data, started = data.model_copy(update={"held_out_fraction": fraction}), time.perf_counter()
    return load_corpus(data), data, time.perf_counter() - started


def _subwords(corpus: Corpus, start: Config, num_words: float, hint: str | None) -> Tokenized:
    """BPE, of characters and with one vocabulary for a script without spaces between words."""
    sample = evenly_spaced_pairs(corpus.train, PAIRS_COUNTED)
    shared = hint is not None or have_common_letters(sample["src"], sample["tgt"])
    entries = rule.num_subwords(num_words, shared=shared, unsegmented=hint is not None)
    kind, name, why = ("bpe", "BPE", "")
    if hint is not None:
        kind, name, why = ("bpe_metaspace", "BPE of characters", f"; {hint.split('. ')[0]}")
    tokenizer = {"kind": kind, "max_size": entries, "shared": shared}
    one = "one vocabulary for both languages" if shared else "a vocabulary for each language"
    if len(start.data.directions) > 1:
        one = "a vocabulary for the sources and one for the targets, most of whose letters differ"
        if shared:
            one = "one vocabulary for all languages, because sources and targets have most letters in common"
    return (
        start.with_options(tokenizer=tokenizer, model={"share_embeddings": shared}),
        f"Tokenizer: {name} with at most {entries:,} entries for about {num_words:,.0f} running words, "
        f"{one}{why}.",
    )


def _words(corpus: Corpus, start: Config, num_words: float, num_subwords: int) -> Tokenized | None:
    """Words if they are few and all known, as in generated text, or if that is best in a short run."""
    try:
        text = examine(corpus, start)
    except DataError:
        # No word is frequent, as in lists of names. Anything else will also be wrong with subwords.
        return None
    unknown = most_unknown(text)
    sizes = [tokenizer.size for tokenizer in text.tokenizers]
    if unknown <= rule.MOST_UNKNOWN_OF_CLOSED and max(sizes) <= num_subwords:
        # Costs 2 % of the speed, and lets names and numbers be copied.
        return start.with_options(**rule.aligned(rule.ALIGNMENT_OF_CLOSED)), ""
    if not rule.words_suffice(num_words, unknown, is_short=True):
        return None
    alignment = rule.aligned(rule.ALIGNMENT_OF_FEW)
    short = "With so little text" if num_words <= rule.FEW_WORDS else "In so short a run"
    return (
        start.with_options(**alignment),
        f"Tokenizer: words; up to {unknown:.1%} of those in the held-out text are unknown and will be "
        f"copied. {short} (about {num_words:,.0f} running words), words are learnt faster than "
        "subwords.",
    )


def cost_of(sample: Sample) -> float:
    """Roughly how many times as long as the usual model a run takes for a target token."""
    training = sample.config.training
    num_entries = sample.text.tokenizers.tgt.size // training.softmax_interval
    cost = rule.relative_cost(sample.config.model, num_entries)
    return cost * (rule.R_DROP_COST if training.r_drop else 1.0)


def have_common_letters(src: Sequence[str], tgt: Sequence[str]) -> bool:
    """Whether most letters of each side also occur on the other side, as in English and German."""
    sides = [Counter(filter(str.isalpha, "".join(lines).lower())) for lines in (src, tgt)]
    for one, other in (sides, sides[::-1]):
        # An occasional foreign name does not make a script common.
        usual = {letter for letter, count in other.items() if 1000 * count >= other.total()}
        if 2 * sum(count for letter, count in one.items() if letter in usual) < one.total():
            return False
    return True


def _about_directions(corpus: Corpus, data: DataConfig) -> list[str]:
    if len(data.directions) == 1:
        return []
    shown = [f"{direction}, {pairs}" for direction, pairs in shown_directions(corpus)]
    return [
        f"Directions: {'; '.join(shown)}. data.temperature {data.temperature:g} shows those with less text "
        "more often (1: each pair once), and the mean of all validation splits decides which checkpoint is "
        "best (validation.over)."
    ]


def _about_text(sample: Sample) -> list[str]:
    src, tgt = sample.pairs.src.lengths, sample.pairs.tgt.lengths
    fitting, most = len(sample.pairs) / len(sample.text.train), max(src.max(), tgt.max())
    src_size, tgt_size = (f"{tokenizer.size:,}" for tokenizer in sample.text.tokenizers)
    return [
        f"Tokens per sentence: {src.mean():.1f} source, {tgt.mean():.1f} target on average; {fitting:.1%} of "
        f"the pairs have at most {most}.",
        f"Vocabulary: {src_size} source and {tgt_size} target entries.",
    ]


def _summary(plan: Plan, sample: Sample) -> list[str]:
    config, model, minutes = plan.config, plan.config.model, plan.seconds / 60
    layers = f"{model.num_encoder_layers} + {model.num_decoder_layers}"
    has_copies = config.copies_words and config.tokenizer.kind == "word"
    copied = ", which are copied" if has_copies else ""
    return [
        f"passes   {plan.num_passes:.1f} over the corpus, about {minutes:.1f} minutes on this machine",
        f"steps    {plan.num_steps:,} of {config.training.batch_tokens:,} tokens"
        f"{', with R-Drop' if config.training.r_drop else ''}",
        f"model    {plan.pace.num_parameters:,} parameters: {layers} layers of width {model.d_model}",
        f"unknown  up to {most_unknown(sample.text):.1%} of the words in the held-out text{copied}",
    ]
