"""The rule of `mt init` holds what it promises for every corpus and budget."""

import itertools
import math
from typing import Any

import pytest

from mt.config.training import ScheduleConfig
from mt.preflight import rule
from mt.preflight.rule import (
    DECAY_PASSES,
    MOST_PASSES,
    R_DROP_PASSES,
    SHAPES,
    USUAL_RATES,
    aligns_subwords,
    choose,
    ema_decay,
    num_subwords,
    prefers_words,
    relative_cost,
    sensible_minutes,
    warmup_steps,
)
from mt.training.schedule import learning_rate

NUMBERS_OF_STEPS = [1, 2, 3, 9, 10, 11, 20, 119, 120, 1999, 48_000, 48_001, 10**6]
CORPORA = [200, 14_000, 70_000, 400_000, 3_500_000, 130_000_000]
BUDGETS = [10.0**power for power in range(3, 11)]


def chosen(tokens: float, corpus_tokens: float, num_entries: int = 8000, longest: int = 32) -> dict[str, Any]:
    """The chosen options in one dictionary; no key is in two sections."""
    sections = choose(tokens, corpus_tokens, num_entries, longest)
    return {key: value for options in sections.values() for key, value in options.items()}


@pytest.mark.parametrize("num_steps", NUMBERS_OF_STEPS)
def test_warmup_is_at_most_a_tenth_and_the_rate_ends_near_zero(num_steps: int) -> None:
    warm_up = warmup_steps(num_steps)
    assert 10 * warm_up <= num_steps
    schedule = ScheduleConfig(kind="cosine", total_steps=num_steps, warmup_steps=warm_up)
    rates = [learning_rate(step, schedule, d_model=256) for step in range(1, min(num_steps, 5000) + 1)]
    end = learning_rate(num_steps, schedule, d_model=256)
    assert end <= 0.01 * schedule.learning_rate
    assert max([*rates, end]) <= schedule.learning_rate
    assert 0 < ema_decay(num_steps) < 1
    if 1000 < num_steps < 12_000:
        assert 0.03 * num_steps < 1 / (1 - ema_decay(num_steps)) < 0.06 * num_steps


@pytest.mark.parametrize("corpus_tokens", [70_000, 170_000, 400_000, 2e6])
def test_subwords_have_r_drop_or_are_aligned_but_never_both(corpus_tokens: float) -> None:
    for passes in range(1, 200):
        tokens = passes * corpus_tokens
        with_r_drop = chosen(tokens, corpus_tokens)["r_drop"] > 0
        assert not (with_r_drop and aligns_subwords(tokens, corpus_tokens))
        # Without R-Drop, words were ahead of subwords in each pair of runs.
        assert with_r_drop or prefers_words(tokens, corpus_tokens)
    assert not prefers_words(1000 * corpus_tokens, corpus_tokens)


def test_text_as_people_write_it_is_learnt_where_the_budget_allows_it() -> None:
    assert rule.as_written(4.9, has_words=True) == {}
    of_words, of_subwords = (rule.as_written(5, has_words=words)["as_written"] for words in (True, False))
    assert of_words.keys() == {"no_final_punctuation", "joined", "noise"}
    assert of_subwords == of_words | {"upper": 0.07, "title": 0.05, "typos": 0.05}


def test_no_vocabulary_is_larger_than_its_corpus_can_teach() -> None:
    counts = [10, 1000, 13_000, 65_000, 100_001, 380_000, 2_000_001, 10**7 + 1, 10**9]
    for shared in (True, False):
        sizes = [num_subwords(count, shared=shared) for count in counts]
        assert sizes == sorted(sizes)
        # An average entry occurs at least ten times; the 256 bytes must fit in any case.
        assert all(256 + 4 < size <= max(2000, count / 10) for size, count in zip(sizes, counts, strict=True))
    # For the corpora of the recipes, as in the literature.
    assert num_subwords(380_000, shared=True) == 2 * num_subwords(380_000, shared=False) == 8000
    assert num_subwords(130_000_000, shared=True) == 32_000


@pytest.mark.parametrize(("corpus_tokens", "tokens"), list(itertools.product(CORPORA, BUDGETS)))
def test_settings_grow_with_the_budget_and_regularisation_with_the_passes(
    corpus_tokens: float, tokens: float
) -> None:
    tokens = min(tokens, MOST_PASSES * corpus_tokens)
    options, twice = chosen(tokens, corpus_tokens), chosen(2 * tokens, corpus_tokens)
    shape = next(shape for shape in SHAPES if shape.model.d_ff == options["d_ff"])
    seen = tokens / relative_cost(shape.model, 8000) / (2 if options["r_drop"] else 1) / corpus_tokens
    if options["r_drop"]:
        assert seen >= R_DROP_PASSES
    assert (options["weight_decay"] > 0) == (options["muon"] and seen > DECAY_PASSES)
    if seen > 25:
        assert options["dropout"] >= 0.3
    if seen < 5:
        assert options["dropout"] == 0
    if corpus_tokens < 1_000_000:
        assert options["d_model"] <= (384 if options["r_drop"] else 256)
    # A short run has hundreds of steps, unless there is hardly any text.
    assert seen * corpus_tokens < 300_000 or seen * corpus_tokens / options["batch_tokens"] > 500
    assert 256 <= options["batch_tokens"] <= max(256, corpus_tokens / 50)
    assert 1e-4 < options["learning_rate"] < 5e-3
    is_wider = twice["d_model"] > options["d_model"]
    assert twice["dropout"] >= options["dropout"] or is_wider
    assert twice["r_drop"] >= options["r_drop"] or is_wider


@pytest.mark.parametrize(
    ("corpus_tokens", "rate", "minutes"),
    # 45 passes at most, 25 over 400,000 tokens, and three at least; above four hours, whole hours.
    [(1000, 1500, 1), (40_000, 1000, 30), (400_000, 1000, 180), (4e9, 1e6, 240), (4e9, 1e5, 2040)],
)
def test_a_budget_suits_the_corpus_and_is_round(corpus_tokens: float, rate: float, minutes: float) -> None:
    assert sensible_minutes(corpus_tokens, rate) == minutes


@pytest.mark.parametrize("corpus_tokens", [70_000, 400_000, 3_500_000, 8_000_000, 25_000_000])
def test_no_budget_has_a_narrower_model_than_a_smaller_one(corpus_tokens: float) -> None:
    widths = [chosen(10 ** (6 + step / 100), corpus_tokens, 12_000)["d_model"] for step in range(400)]
    assert widths == sorted(widths)


@pytest.mark.parametrize("corpus_tokens", [70_000, 400_000])
def test_a_run_of_a_minute_has_the_smallest_model(corpus_tokens: float) -> None:
    smallest, usual = (shape.model.d_model for shape in SHAPES[:2])
    assert chosen(60 * USUAL_RATES["cpu"], corpus_tokens)["d_model"] == smallest
    assert chosen(600 * USUAL_RATES["cpu"], corpus_tokens)["d_model"] == usual


@pytest.mark.parametrize(
    ("tokens", "layers"),
    [(320_000, (2, 1)), (500_000, (2, 1)), (501_000, (3, 1)), (900_000, (3, 1)), (901_000, None)],
)
def test_a_short_run_that_begins_with_the_lexicon_has_cheaper_steps(
    tokens: float, layers: tuple[int, int] | None
) -> None:
    options, usual = (choose(tokens, 400_000, 8000, 32, is_aligned=each) for each in (True, False))
    names = "num_encoder_layers", "num_decoder_layers"
    assert [options["model"].get(name) for name in names] == [*(layers or (None, None))]
    assert not {*names} & usual["model"].keys()
    intervals = [each["training"]["softmax_interval"] for each in (options, usual)]
    assert intervals == [8 if layers else 1, 1]


def test_muon_takes_turns_where_batches_are_small() -> None:
    intervals = {chosen(tokens, 3_500_000)["batch_tokens"]: chosen(tokens, 3_500_000) for tokens in BUDGETS}
    for batch_tokens, options in intervals.items():
        assert options["muon_interval"] == (2 if options["muon"] and batch_tokens <= 1024 else 1)
    assert {options["muon_interval"] for options in intervals.values()} == {1, 2}


def test_a_long_sentence_makes_the_batch_larger_and_the_rate_fits_it() -> None:
    usual, longer = (chosen(1e5, 14_000, 8000, longest) for longest in (32, 1024))
    assert (usual["batch_tokens"], longer["batch_tokens"]) == (256, 1024)
    assert math.isclose(longer["learning_rate"] / usual["learning_rate"], 4**0.25, rel_tol=0.03)
