"""The rule of `mt init` holds what it promises for every corpus and budget."""

import itertools
import math

import pytest

from mt.config.training import ScheduleConfig
from mt.preflight.rule import (
    CURVE,
    DECAY_PASSES,
    MOST_PASSES,
    R_DROP_PASSES,
    SHAPES,
    USUAL_MODEL,
    Settings,
    aligns_subwords,
    choose,
    ema_decay,
    gain_of_doubling,
    num_subwords,
    prefers_words,
    relative_cost,
    sensible_passes,
    warmup_steps,
)
from mt.training.schedule import learning_rate

NUMBERS_OF_STEPS = [1, 2, 3, 9, 10, 11, 20, 119, 120, 1999, 48_000, 48_001, 10**6]
CORPORA = [200, 14_000, 70_000, 400_000, 3_500_000, 130_000_000]
BUDGETS = [10.0**power for power in range(3, 11)]


@pytest.mark.parametrize("num_steps", NUMBERS_OF_STEPS)
def test_the_warm_up_is_at_most_a_tenth_and_the_rate_ends_at_a_hundredth_or_less(num_steps: int) -> None:
    warm_up = warmup_steps(num_steps)
    assert 10 * warm_up <= num_steps
    schedule = ScheduleConfig(kind="cosine", total_steps=num_steps, warmup_steps=warm_up)
    rates = [learning_rate(step, schedule, d_model=256) for step in range(1, min(num_steps, 5000) + 1)]
    end = learning_rate(num_steps, schedule, d_model=256)
    assert end <= 0.01 * schedule.learning_rate
    assert max([*rates, end]) <= schedule.learning_rate
    assert 0 < ema_decay(num_steps) < 1


def test_the_average_is_over_a_small_part_of_the_run() -> None:
    for num_steps in (1000, 2585, 11_500):
        steps_averaged = 1 / (1 - ema_decay(num_steps))
        assert 0.03 * num_steps < steps_averaged < 0.06 * num_steps


@pytest.mark.parametrize(
    ("passes", "corpus_tokens", "expected"),
    [(2, 400_000, True), (20, 400_000, True), (21, 400_000, False), (2, 3e6, True), (2, 4e6, False)],
)
def test_subwords_are_aligned_in_few_passes_over_a_corpus_that_is_not_large(
    passes: float, corpus_tokens: float, expected: bool
) -> None:
    assert aligns_subwords(passes * corpus_tokens, corpus_tokens, in_time=True) == expected


@pytest.mark.parametrize("corpus_tokens", [70_000, 170_000, 400_000, 2e6])
@pytest.mark.parametrize("in_time", [True, False])
def test_subwords_are_learnt_with_r_drop_or_aligned_in_few_passes_but_never_both(
    corpus_tokens: float, in_time: bool
) -> None:
    for passes in range(1, 200):
        affordable = passes * corpus_tokens
        with_r_drop = choose(affordable, corpus_tokens, 8000, 32, in_time=in_time).r_drop > 0
        assert not (with_r_drop and aligns_subwords(affordable, corpus_tokens, in_time=in_time))
        # Without R-Drop, words were ahead of subwords in each pair of runs.
        assert with_r_drop or prefers_words(affordable, corpus_tokens, in_time=in_time)
    assert not prefers_words(1000 * corpus_tokens, corpus_tokens, in_time=in_time)


def test_no_vocabulary_is_larger_than_its_corpus_can_teach() -> None:
    counts = [10, 1000, 13_000, 65_000, 100_001, 380_000, 2_000_001, 10**7 + 1, 10**9]
    for shared in (True, False):
        sizes = [num_subwords(count, shared=shared) for count in counts]
        assert sizes == sorted(sizes)
        # An average entry occurs at least ten times; the 256 bytes must fit in any case.
        assert all(256 + 4 < size <= max(2000, count / 10) for size, count in zip(sizes, counts, strict=True))
    # For the corpora of the recipes, as in the literature.
    assert num_subwords(380_000, shared=True) == 8000
    assert num_subwords(130_000_000, shared=True) == 32_000


def passes(settings: Settings, affordable: float, corpus_tokens: float) -> float:
    """Passes over the corpus in the time of ``affordable`` tokens of the usual model."""
    cost = relative_cost(settings.model, 8000) * (2 if settings.r_drop else 1)
    return affordable / cost / corpus_tokens


@pytest.mark.parametrize(("corpus_tokens", "affordable"), list(itertools.product(CORPORA, BUDGETS)))
def test_settings_grow_with_the_budget_and_regularisation_with_the_passes(
    corpus_tokens: float, affordable: float
) -> None:
    affordable = min(affordable, MOST_PASSES * corpus_tokens)
    settings = choose(affordable, corpus_tokens, 8000, 32, in_time=True)
    seen = passes(settings, affordable, corpus_tokens)
    if settings.r_drop:
        assert seen >= R_DROP_PASSES
    assert (settings.weight_decay > 0) == (settings.muon and seen > DECAY_PASSES)
    if seen > 25:
        assert settings.model.dropout >= 0.3
    if seen < 5:
        assert settings.model.dropout == 0
    if corpus_tokens < 1_000_000:
        assert settings.model.d_model <= (384 if settings.r_drop else 256)
    assert settings.batch_tokens >= 256
    # A short run has hundreds of steps, unless there is hardly any text.
    assert seen * corpus_tokens < 300_000 or seen * corpus_tokens / settings.batch_tokens > 500
    assert settings.batch_tokens <= max(256, corpus_tokens / 50)
    assert 1e-4 < settings.learning_rate < 5e-3
    twice = choose(2 * affordable, corpus_tokens, 8000, 32, in_time=True)
    assert twice.model.dropout >= settings.model.dropout or twice.model.d_model > settings.model.d_model
    assert twice.r_drop >= settings.r_drop or twice.model.d_model > settings.model.d_model
    assert twice.model.d_model >= settings.model.d_model


@pytest.mark.parametrize("corpus_tokens", [70_000, 400_000, 3_500_000, 8_000_000, 25_000_000])
def test_no_budget_has_a_narrower_model_than_a_smaller_one(corpus_tokens: float) -> None:
    widths = [
        choose(10 ** (6 + step / 100), corpus_tokens, 12_000, 32, in_time=True).model.d_model
        for step in range(400)
    ]
    assert widths == sorted(widths)


def test_a_wide_model_is_chosen_for_a_long_run_with_r_drop_alone() -> None:
    # Multi30k, and the time of this many passes of the usual model.
    widths = {passes: choose(4.7e5 * passes, 4.7e5, 6000, 64, in_time=True) for passes in (30, 62, 77, 500)}
    assert [each.model.d_model for each in widths.values()] == [256, 256, 384, 384]
    assert all(each.r_drop > 0 for each in widths.values() if each.model.d_model == 384)
    # The settings that were measured.
    assert (widths[77].batch_tokens, widths[77].learning_rate, widths[77].weight_decay) == (2048, 2.6e-3, 0.3)


def test_a_number_of_tokens_has_the_wide_model_from_as_many_passes_as_were_measured() -> None:
    runs = [choose(4.7e5 * passes, 4.7e5, 6000, 64, in_time=False) for passes in (15, 17)]
    assert [(each.model.d_model, each.r_drop > 0) for each in runs] == [(256, True), (384, True)]


def test_a_long_sentence_makes_the_batch_larger_and_the_rate_that_of_this_batch() -> None:
    usual, longer = (choose(1e5, 14_000, 8000, longest, in_time=True) for longest in (32, 1024))
    assert (usual.batch_tokens, longer.batch_tokens) == (256, 1024)
    assert math.isclose(longer.learning_rate / usual.learning_rate, 4**0.25, rel_tol=0.03)


def test_a_number_of_tokens_is_not_fewer_tokens_with_a_larger_model() -> None:
    # 10 million target tokens on Multi30k are 25 passes with R-Drop, which has room for 12 in their time.
    assert choose(10e6, 400_000, 8000, 32, in_time=False).r_drop > 0
    assert choose(10e6, 400_000, 8000, 32, in_time=True).r_drop == 0
    # The paper's base model, 100,000 steps of 25,000 tokens on WMT14.
    settings = choose(2.5e9, 130e6, 32_000, 32, in_time=False)
    assert (settings.model.d_model, settings.model.num_encoder_layers) == (512, 6)


def test_shapes_grow_and_cost_more() -> None:
    costs = [relative_cost(shape.model, 8000) for shape in SHAPES]
    assert costs == sorted(costs)
    assert relative_cost(USUAL_MODEL, 8000) == 1
    # By hand: 12 d^2 a encoder layer, 16 d^2 a decoder layer if d_ff is 4 d, and the output.
    d = 256
    assert math.isclose(
        relative_cost(SHAPES[-1].model, 8000),
        (6 * 28 * (2 * d) ** 2 + 2 * d * 8000) / (3 * 28 * d**2 + d * 8000),
    )


def test_a_larger_corpus_is_worth_fewer_passes_but_more_tokens() -> None:
    proposed = [sensible_passes(tokens) for tokens in CORPORA]
    assert proposed == sorted(proposed, reverse=True)
    tokens = [passes * corpus for passes, corpus in zip(proposed, CORPORA, strict=True)]
    assert tokens == sorted(tokens)


def test_doubling_brings_what_the_runs_gained_and_beyond_them_nothing_is_claimed() -> None:
    first, second = CURVE[0], CURVE[1]
    slope = (second[1] - first[1]) / math.log2(second[0] / first[0])
    assert gain_of_doubling(2) == pytest.approx(slope)
    assert all((gain_of_doubling(passes) or 0) > 0 for passes in (2, 6, 12, 25, 38, 50))
    assert gain_of_doubling(1) is None
    assert gain_of_doubling(51) is None
