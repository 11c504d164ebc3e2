"""The stream of batches is a function of the position and the options, whoever asks, also collated ahead."""

from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mt import processes
from mt.config.data import TokenizerConfig
from mt.data.batches.batch import Batch, collate
from mt.data.batches.bpe_dropout import BpeDropout
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.pairs import EncodedPairs, EncodedSentences
from mt.data.batches.sampler import Share
from mt.data.batches.stream import BatchStream, batches_of_stages, training_batches
from mt.data.corpus import load_corpus
from mt.data.prepare import make_tokenizers, prepare
from mt.data.tokenizers.train import train_tokenizer
from mt.errors import DataError
from mt.run_directory import RunDirectory
from mt.sides import Sides
from mt.special_tokens import UNK_ID
from tests.data.conftest import raw_ids
from tests.fixture_types import MakeConfig

Position = tuple[int, int]


def make_pairs(num_pairs: int) -> EncodedPairs:
    """Pairs of random lengths, each with its own number as the first id on both sides."""
    generator = np.random.default_rng(6)

    def side() -> EncodedSentences:
        sentences = [[100 + i, *[5] * int(generator.integers(0, 9))] for i in range(num_pairs)]
        return EncodedSentences.of(sentences)

    return EncodedPairs(side(), side())


def make_stream(pairs: EncodedPairs, num_micro_batches: int = 3, seed: int = 1) -> BatchStream:
    return BatchStream(pairs=pairs, batch_tokens=30, num_micro_batches=num_micro_batches, seed=seed)


def walk(stream: BatchStream, position: Position, num_steps: int) -> list[tuple[Position, list[Batch]]]:
    """The steps from a position on, each with where it begins."""
    steps = []
    for _ in range(num_steps):
        taken = stream.take(position)
        steps.append((position, taken.micro_batches))
        position = taken.next_position
    return steps


def numbers(batch: Batch) -> list[int]:
    """Which pairs the batch holds."""
    return [int(row[0]) - 100 for row in batch.src_ids]


def test_stream_is_the_same_from_any_position() -> None:
    pairs = make_pairs(50)
    steps = walk(make_stream(pairs), (0, 0), 20)
    assert steps[-1][0][0] >= 2
    for start in (1, 4, 9, 13):
        resumed = walk(make_stream(pairs), steps[start][0], len(steps) - start)
        for (position, batches), (expected_position, expected) in zip(resumed, steps[start:], strict=True):
            assert position == expected_position
            assert len(batches) == len(expected)
            for ours, theirs in zip(batches, expected, strict=True):
                assert torch.equal(ours.src_ids, theirs.src_ids)
                assert torch.equal(ours.labels, theirs.labels)


@pytest.mark.parametrize("num_micro_batches", [1, 3, 1000])
def test_each_pair_comes_once_an_epoch(num_micro_batches: int) -> None:
    stream = make_stream(make_pairs(50), num_micro_batches)
    orders = []
    for epoch in (0, 1):
        seen: list[int] = []
        position: Position = (epoch, 0)
        num_steps = 0
        while position[0] == epoch:
            micro_batches, num_target_tokens, position = stream.take(position)
            assert num_target_tokens == sum(batch.num_target_tokens for batch in micro_batches)
            num_steps += 1
            for batch in micro_batches:
                seen += numbers(batch)
                # The two sides stay together.
                assert numbers(batch) == [int(row[1]) - 100 for row in batch.tgt_ids]
        assert position == (epoch + 1, 0)
        assert num_steps == stream.num_steps(epoch)
        assert sorted(seen) == list(range(50))
        orders.append(seen)
    other = make_stream(make_pairs(50), num_micro_batches, seed=2)
    orders.append(
        [n for number in range(len(other.epoch(0).batches)) for n in numbers(other.batch_of(0, number))]
    )
    assert all(one != another for one, another in combinations(orders, 2))


def test_the_largest_batch_has_the_most_positions_on_both_sides() -> None:
    stream = make_stream(make_pairs(50))
    for epoch in (0, 1):
        batches = [stream.batch_of(epoch, number) for number in range(len(stream.epoch(epoch).batches))]
        largest = stream.largest_batch(epoch)
        assert largest.num_positions == max(batch.num_positions for batch in batches)
        assert largest.dropout_seed in {batch.dropout_seed for batch in batches}
        assert stream.num_target_tokens(epoch) == sum(batch.num_target_tokens for batch in batches)


def test_steps_take_the_batches_in_their_order_and_the_last_what_is_left() -> None:
    pairs = make_pairs(50)
    singles = walk(make_stream(pairs, 1), (0, 0), make_stream(pairs, 1).num_steps(0))
    num_batches = len(singles)
    assert num_batches % 6 not in (0, 1)
    stream = make_stream(pairs, 6)
    *steps, following = walk(stream, (0, 0), stream.num_steps(0) + 1)
    assert [position for position, _ in steps] == [(0, start) for start in range(0, num_batches, 6)]
    assert [len(batches) for _, batches in steps] == [6] * (len(steps) - 1) + [num_batches % 6]
    assert following[0] == (1, 0)
    in_order = [numbers(batch) for _, batches in steps for batch in batches]
    assert in_order == [numbers(batch) for _, [batch] in singles]
    # Two processes have every other one, and know the tokens of both; one without any learns nothing.
    processes = [
        BatchStream(pairs=pairs, batch_tokens=30, num_micro_batches=6, seed=1, rank=rank, num_processes=2)
        for rank in (0, 1)
    ]
    for position, batches in steps:
        first, second = (process.take(position) for process in processes)
        assert [numbers(batch) for batch in first.micro_batches] == [numbers(batch) for batch in batches[::2]]
        assert [numbers(batch) for batch in second.micro_batches] == [
            numbers(batch) for batch in batches[1::2]
        ]
        own = sum(batch.num_target_tokens for batch in (*first.micro_batches, *second.micro_batches))
        assert first.num_target_tokens == second.num_target_tokens == own
    alone = BatchStream(pairs=pairs, batch_tokens=30, num_micro_batches=1, seed=1, rank=1, num_processes=2)
    [idle], num_target_tokens, _ = alone.take((0, 0))
    assert (idle.num_target_tokens, num_target_tokens) == (0, singles[0][1][0].num_target_tokens)


def test_dropout_is_seeded_by_seed_epoch_and_batch_however_steps_are_cut() -> None:
    pairs = make_pairs(50)
    seeds = [
        [
            [
                batch.dropout_seed
                for _, batches in walk(stream, (epoch, 0), stream.num_steps(epoch))
                for batch in batches
            ]
            for epoch in (0, 1)
        ]
        for stream in (make_stream(pairs, 1), make_stream(pairs, 4), make_stream(pairs, 1, seed=2))
    ]
    assert seeds[0] == seeds[1]
    each = [seed for epoch in (*seeds[0], *seeds[2]) for seed in epoch]
    assert len(set(each)) == len(each)
    # The position in the epoch, not what the batch holds.
    assert seeds[0][0][3] == make_stream(make_pairs(30), 1).take((0, 3))[0][0].dropout_seed


def test_bpe_dropout_follows_from_the_position_and_differs_between_epochs() -> None:
    texts = [f"the number {i} manner manly manners" for i in range(50)]
    tokenizer = train_tokenizer(texts, TokenizerConfig(kind="bpe", max_size=300))
    sentences = EncodedSentences.of(tokenizer.encode_batch(texts))
    shares = (Share(20, 1.0), Share(10, 2.5), Share(20, 0.5))
    pairs = EncodedPairs(sentences, sentences, shares)
    dropout = BpeDropout(tokenizer, share=0.5, max_length=100)

    def stream() -> BatchStream:
        return BatchStream(
            pairs=pairs, batch_tokens=80, num_micro_batches=1, seed=1, bpe_dropouts=Sides(dropout, dropout)
        )

    def batches(epoch: int) -> list[Batch]:
        return [batch for _, step in walk(stream(), (epoch, 0), stream().num_steps(epoch)) for batch in step]

    first = batches(0)
    assert all(torch.equal(one.src_ids, two.src_ids) for one, two in zip(first, batches(0), strict=True))
    assert sum(batch.num_target_tokens for batch in first) == stream().num_target_tokens(0)
    # Batches are made of sentences as they are segmented, so that no batch grows beyond its tokens.
    assert all(max(batch.src_ids.numel(), batch.labels.numel()) <= 80 for batch in first)
    for epoch in (0, 1):
        src, tgt = ([row for batch in batches(epoch) for row in raw_ids(batch)[side]] for side in (0, 1))
        written = Counter(tokenizer.decode(row) for row in src)
        counts = [written[text] for text in texts]
        assert [sum(counts[run]) for run in (slice(20), slice(20, 30), slice(30, 50))] == [20, 25, 10]
        assert sum(one != other for one, other in zip(src, tgt, strict=True)) > 30


def test_other_words_are_replaced_with_unk_in_each_epoch_and_batch_and_with_each_seed() -> None:
    """Of pairs of which no two are of one length, so that the only batch has the same ones in each epoch."""

    def hidden(lengths: range | list[int], seed: int, epoch: int, batch: int = 0) -> list[list[bool]]:
        src, tgt = (
            EncodedSentences.of([range(10, 10 + length + more) for length in lengths]) for more in (1, 0)
        )
        positions = np.concatenate([np.arange(length, dtype=np.int16) for length in lengths])
        stream = BatchStream(
            pairs=EncodedPairs(src, tgt, src_positions=positions),
            batch_tokens=300,
            num_micro_batches=1,
            seed=seed,
            unknown_share=0.5,
        )
        of_step = stream.take((epoch, batch)).micro_batches[0]
        assert torch.equal(of_step.src_ids[:, :-1] == UNK_ID, of_step.labels == UNK_ID)
        return (of_step.labels == UNK_ID).tolist()

    lengths = range(2, 14)
    assert hidden(lengths, 1, 0) == hidden(lengths, 1, 0)
    draws = [hidden(lengths, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (1, 2), (2, 0), (2, 1))]
    draws += [hidden([9] * 60, 1, 0, batch) for batch in (0, 1)]
    assert all(any(map(any, draw)) and draws.count(draw) == 1 for draw in draws)


@pytest.mark.parametrize("kind", ["bpe", "bpe_metaspace"])
def test_bpe_dropout_of_a_run_cuts_each_side_differently_in_each_epoch_and_with_each_seed(
    kind: str, make_config: MakeConfig
) -> None:
    options = (f"tokenizer.kind={kind}", "tokenizer.max_size=400", "data.max_length=200")
    plain = make_config(*options, "tokenizer.min_frequency=1")
    train = load_corpus(plain.data).train
    tokenizers = make_tokenizers(train, plain)
    pairs, _ = encode_pairs(train, tokenizers, max_length=200)

    # No sentence becomes longer than the run allows.
    limit = int(max(side.lengths.max() for side in (pairs.src, pairs.tgt)))
    bound = make_config(*options, f"data.max_length={limit}", "training.bpe_dropout=0.9")
    of_epoch = training_batches(bound, pairs, tokenizers).epoch(0).pairs
    assert max(side.lengths.max() for side in (of_epoch.src, of_epoch.tgt)) == limit

    def cuts(share: float, epoch: int, seed: int = 1) -> list[dict[str, list[int]]]:
        """How the text of each source and of each target is cut."""
        config = make_config(*options, f"training.bpe_dropout={share}", f"training.seed={seed}")
        of_epoch = training_batches(config, pairs, tokenizers).epoch(epoch).pairs
        by_text: list[dict[str, list[int]]] = [{}, {}]
        for texts, side, tokenizer in zip(by_text, (of_epoch.src, of_epoch.tgt), tokenizers, strict=True):
            texts.update((tokenizer.decode(ids.tolist()), ids.tolist()) for ids in side)
        return by_text

    assert cuts(0.0, 0) == cuts(0.0, 1)
    assert cuts(0.5, 0) == cuts(0.5, 0)
    others = [cuts(0.0, 0), cuts(0.5, 0), cuts(0.5, 1), cuts(0.5, 0, seed=2)]
    for one, other in combinations(others, 2):
        for ours, theirs in zip(one, other, strict=True):
            assert ours.keys() == theirs.keys()
            assert sum(ids != theirs[text] for text, ids in ours.items()) > 0.3 * len(ours)


def test_the_batches_of_a_run_are_those_of_its_options(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "RANK", 1)
    monkeypatch.setattr(processes, "SIZE", 3)
    training = ("batch_tokens=77", "num_micro_batches=5", "seed=9", "guided_alignment=1", "unknown_share=0.3")
    tokenizer = train_tokenizer(["a"], TokenizerConfig(min_frequency=1))
    config, pairs = make_config(*(f"training.{option}" for option in training)), make_pairs(3)
    stream = training_batches(config, pairs, Sides(tokenizer, tokenizer))
    assert (stream.batch_tokens, stream.num_micro_batches, stream.seed) == (77, 5, 9)
    assert (stream.unknown_share, stream.rank, stream.num_processes) == (0.3, 1, 3)


@pytest.mark.parametrize(("kind", "hides_words"), [("word", True), ("bpe", False), ("bpe_metaspace", False)])
def test_subwords_are_aligned_like_words_but_never_unknown(
    kind: str, hides_words: bool, make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(
        f"tokenizer.kind={kind}",
        f"tokenizer.max_size={10_000 if kind == 'word' else 400}",
        "training.guided_alignment=0.5",
        "training.unknown_share=0.9",
    )
    prepared = prepare(config, RunDirectory(tmp_path), resuming=False)
    tokenizers = prepared.tokenizers
    stream = training_batches(config, prepared.train, tokenizers)
    batch = stream.take((0, 0))[0][0]
    assert batch.alignment is not None
    assert (batch.alignment >= 0).any()
    assert bool((batch.src_ids == UNK_ID).any()) == hides_words


def make_pair_stream(**which: Any) -> BatchStream:
    return BatchStream(pairs=make_pairs(30), batch_tokens=30, num_micro_batches=2, seed=3, **which)


def take_steps(stream: BatchStream, num_steps: int, start: Position = (0, 0)) -> list[Any]:
    """Each step's tensors and seeds, and the position after it."""
    taken, position = [], start
    for _ in range(num_steps):
        batches, _, position = stream.take(position)
        taken.append(([(values(batch), batch.dropout_seed) for batch in batches], position))
    return taken


def values(batch: Batch) -> list[Any]:
    return [each.tolist() for each in vars(batch).values() if isinstance(each, torch.Tensor)]


@pytest.mark.parametrize("which", [{}, {"rank": 1, "num_processes": 2}], ids=["alone", "second of two"])
@pytest.mark.parametrize("start", [(0, 0), (0, 2)])
def test_the_steps_of_three_epochs_are_those_of_the_stream(start: Position, which: dict[str, int]) -> None:
    expected = take_steps(make_pair_stream(**which), 3 * make_pair_stream().num_steps(0), start)
    assert expected[-1][1] >= (3, 0)
    stream = make_pair_stream(**which)
    with stream.collating_ahead(pinned=False):
        assert take_steps(stream, len(expected), start) == expected


@pytest.mark.parametrize("pinned", [False, True])
def test_batches_are_pinned_within_the_block_alone(pinned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch, "pin_memory", lambda batch: replace(batch, dropout_seed=None))
    stream = make_pair_stream()
    with stream.collating_ahead(pinned=pinned):
        taken = take_steps(stream, 2)
    for outside, steps in ((False, taken), (True, take_steps(stream, 2))):
        seeds = [seed for batches, _ in steps for _, seed in batches]
        assert {seed is None for seed in seeds} == {pinned and not outside}


def test_what_goes_wrong_in_the_thread_is_raised_where_the_step_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_collated = 0

    def spoilt(*arguments: Any) -> Batch:
        nonlocal num_collated
        num_collated += 1
        if num_collated == 6:
            raise DataError("the corpus cannot be read any more.")
        return collate(*arguments)

    monkeypatch.setattr("mt.data.batches.stream.collate", spoilt)
    stream = make_pair_stream()
    with stream.collating_ahead(pinned=False):
        ((_, second),) = take_steps(stream, 1)
        ((_, third),) = take_steps(stream, 1, second)
        assert third == (0, 4)
        with pytest.raises(DataError, match="cannot be read any more"):
            stream.take(third)


def of_two_sources(seed: int = 1) -> BatchStream:
    sentences = EncodedSentences.of([[i + 4] for i in range(30)])
    pairs = EncodedPairs(sentences, sentences, (Share(20, 1.0), Share(10, 1.0)))
    return BatchStream(pairs=pairs, batch_tokens=8, num_micro_batches=1, seed=seed)


def pairs_in(batches: BatchStream, epoch: int) -> list[int]:
    return [*map(int, np.concatenate(batches.epoch(epoch).batches))]


def test_each_stage_draws_by_its_own_weights_and_the_first_as_a_run_without_stages() -> None:
    usual, only_second = (Share(0, 1.0), Share(0, 1.0)), (Share(0, 0.0), Share(0, 2.0))
    first, second, third = batches_of_stages(of_two_sources(), [usual, only_second, usual])
    assert pairs_in(first, 3) == pairs_in(of_two_sources(), 3)
    assert sorted(pairs_in(second, 0)) == sorted([*range(20, 30)] * 2)
    assert sorted(pairs_in(third, 3)) == [*range(30)]
    assert pairs_in(third, 3) != pairs_in(first, 3)
    assert (
        first.take((0, 0)).micro_batches[0].dropout_seed != third.take((0, 0)).micro_batches[0].dropout_seed
    )
    [alone] = batches_of_stages(of_two_sources(2), [])
    assert pairs_in(alone, 1) == pairs_in(of_two_sources(2), 1)
