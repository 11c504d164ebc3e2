"""Transforms: what is changed follows from the epoch and the row alone, and nothing else is touched."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch

from mt.config.data import TokenizerConfig
from mt.data.batches.alignment import NONE, SrcPositions
from mt.data.batches.bpe_dropout import BpeDropout
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.pairs import EncodedPairs, Ids
from mt.data.batches.stream import BatchStream
from mt.data.batches.transforms import Transform, Transforms
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.train import train_tokenizer
from mt.sides import Sides

# Some are dropped, so that the pair at an index is not that of the row.
TEXTS = [f"{'x ' * (i % 7)}the man number {i}" if i % 9 else "" for i in range(300)]
CORPUS = datasets.Dataset.from_dict({"src": TEXTS, "tgt": [text[::-1] for text in TEXTS]})
MAX_LENGTH = 40


@pytest.fixture(scope="module")
def tokenizers() -> Sides[Tokenizer]:
    lines = [*CORPUS["src"], *CORPUS["tgt"]]
    lines += [line.upper() for line in lines]
    return Sides(*[train_tokenizer(lines, TokenizerConfig(kind="bpe", max_size=330))] * 2)


@pytest.fixture
def pairs(tokenizers: Sides[Tokenizer]) -> EncodedPairs:
    return encode_pairs(CORPUS, tokenizers, max_length=MAX_LENGTH, with_rows=True)[0]


def upper(row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
    """Capitals on the source; the target has its row, and a number that is drawn."""
    return Sides(text.src.upper(), f"{row} {generator.integers(100)}")


CAPITALS = Transform("capitals", 0.3, upper)


def make_transforms(
    tokenizers: Sides[Tokenizer], *in_order: Transform, max_length: int = MAX_LENGTH
) -> Transforms:
    return Transforms(in_order, CORPUS, tokenizers, max_length)


def as_text(pairs: EncodedPairs, tokenizers: Sides[Tokenizer]) -> list[tuple[str, str]]:
    decoded = [
        [tokenizer.decode(ids.tolist()) for ids in side]
        for side, tokenizer in zip((pairs.src, pairs.tgt), tokenizers, strict=True)
    ]
    return list(zip(*decoded, strict=True))


def differing(one: EncodedPairs, other: EncodedPairs) -> list[int]:
    """The indices of the pairs that differ in any id."""
    assert len(one) == len(other)
    sides = (one.src, other.src), (one.tgt, other.tgt)
    return [
        i for i in range(len(one)) if not all(np.array_equal(ours[i], theirs[i]) for ours, theirs in sides)
    ]


def test_the_row_of_each_pair_is_known_on_request_also_from_the_cache(
    tokenizers: Sides[Tokenizer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MT_CACHE", str(tmp_path))
    monkeypatch.setattr("mt.data.cache.MANY_PAIRS", 0)
    for _ in range(2):
        plain, dropped = encode_pairs(CORPUS, tokenizers, max_length=MAX_LENGTH)
        assert plain.rows is None
        assert dropped["empty"] > 0
        pairs, _ = encode_pairs(CORPUS, tokenizers, max_length=MAX_LENGTH, with_rows=True)
        assert pairs.rows is not None
        assert differing(plain, pairs) == []
        sources = [CORPUS[row]["src"] for row in pairs.rows.tolist()]
        assert sources == [src for src, _ in as_text(pairs, tokenizers)]


def test_a_share_of_rows_has_another_text_in_each_epoch(
    tokenizers: Sides[Tokenizer], pairs: EncodedPairs
) -> None:
    transforms = make_transforms(tokenizers, CAPITALS)
    epochs = [transforms(pairs, None, seed, epoch)[0] for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    assert differing(epochs[0], transforms(pairs, None, 1, 0)[0]) == []
    chosen = [differing(pairs, changed) for changed in epochs]
    assert chosen[0] != chosen[1] != chosen[2] != chosen[0]
    assert pairs.rows is not None
    before = as_text(pairs, tokenizers)
    for changed, indices in zip(epochs, chosen, strict=True):
        assert 0.2 * len(pairs) < len(indices) < 0.4 * len(pairs)
        assert changed.shares == pairs.shares
        for side in (changed.src, changed.tgt):
            assert side.lengths.tolist() == [len(ids) + 1 for ids in side]
            assert [array.dtype for array in (side.ids, side.lengths)] == ["i4", "i4"]
        after = as_text(changed, tokenizers)
        for i in indices:
            assert after[i][0] == before[i][0].upper()
            assert after[i][1].split()[0] == str(pairs.rows[i])
    both = set(chosen[0]) & set(chosen[1])
    texts = [as_text(changed, tokenizers) for changed in epochs[:2]]
    assert any(texts[0][i] != texts[1][i] for i in both)


def test_each_purpose_and_each_row_draws_for_itself(
    tokenizers: Sides[Tokenizer], pairs: EncodedPairs
) -> None:
    changed, _ = make_transforms(tokenizers, CAPITALS)(pairs, None, 1, 0)
    other, _ = make_transforms(tokenizers, CAPITALS._replace(purpose="other"))(pairs, None, 1, 0)
    indices = differing(pairs, changed)
    assert indices != differing(pairs, other)
    texts = as_text(changed, tokenizers)
    assert len({texts[i][1].split()[1] for i in indices}) > 20


def test_the_draws_of_a_row_do_not_depend_on_which_others_are_kept(
    tokenizers: Sides[Tokenizer], pairs: EncodedPairs
) -> None:
    longest = int(np.median(pairs.src.lengths))
    fewer, _ = encode_pairs(CORPUS, tokenizers, max_length=longest, with_rows=True)
    assert 0 < len(fewer) < len(pairs)
    drawn = []
    for some in (pairs, fewer):
        changed, _ = make_transforms(tokenizers, CAPITALS)(some, None, 1, 0)
        assert some.rows is not None
        drawn.append(dict(zip(some.rows.tolist(), as_text(changed, tokenizers), strict=True)))
    assert drawn[1].items() <= drawn[0].items()


def test_more_rows_than_are_changed_at_a_time(
    tokenizers: Sides[Tokenizer], pairs: EncodedPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    transforms = make_transforms(tokenizers, CAPITALS)
    whole, _ = transforms(pairs, None, 1, 0)
    monkeypatch.setattr("mt.data.batches.transforms.CHUNK_SIZE", 7)
    assert differing(whole, transforms(pairs, None, 1, 0)[0]) == []


@pytest.mark.parametrize("text", ["", "long " * MAX_LENGTH])
@pytest.mark.parametrize("side", ["src", "tgt"])
def test_what_would_be_empty_or_too_long_stays(
    tokenizers: Sides[Tokenizer], pairs: EncodedPairs, side: str, text: str
) -> None:
    spoil = Transform("spoil", 1.0, lambda row, old, _: old._replace(**{side: text}))
    assert differing(pairs, make_transforms(tokenizers, spoil)(pairs, None, 1, 0)[0]) == []


def test_the_longest_that_fits_is_taken(tokenizers: Sides[Tokenizer], pairs: EncodedPairs) -> None:
    free, _ = make_transforms(tokenizers, CAPITALS, max_length=1000)(pairs, None, 1, 0)
    longest = np.maximum(free.src.lengths, free.tgt.lengths)
    changed = differing(pairs, free)
    limit = int(np.median(longest[changed]))
    bound, _ = make_transforms(tokenizers, CAPITALS, max_length=limit)(pairs, None, 1, 0)
    assert differing(pairs, bound) == [i for i in changed if longest[i] <= limit]


def test_a_row_is_changed_by_the_first_transform_that_draws_it(
    tokenizers: Sides[Tokenizer], pairs: EncodedPairs
) -> None:
    shout = Transform("shout", 0.5, lambda _, text, __: Sides(text.src + "!", text.tgt))
    changed, _ = make_transforms(tokenizers, CAPITALS, shout)(pairs, None, 1, 0)
    capitals, shouted = (
        differing(pairs, make_transforms(tokenizers, alone)(pairs, None, 1, 0)[0])
        for alone in (CAPITALS, shout)
    )
    assert 0 < len({*capitals} & {*shouted}) < len(shouted)
    texts = zip(as_text(pairs, tokenizers), as_text(changed, tokenizers), strict=True)
    for i, ((before, _), (after, _)) in enumerate(texts):
        if i in capitals:
            assert after == before.upper()
        else:
            assert after == before + "!" * (i in shouted)


def identity_positions(pairs: EncodedPairs) -> SrcPositions:
    rows = zip(pairs.src, pairs.tgt, strict=True)
    return np.concatenate([np.minimum(np.arange(len(tgt)), len(src) - 1) for src, tgt in rows]).astype(
        np.int16
    )


def rows_of(flat: SrcPositions, pairs: EncodedPairs) -> list[list[int]]:
    return [part.tolist() for part in np.split(flat, pairs.tgt.offsets[1:-1])]


def test_the_alignment_follows(tokenizers: Sides[Tokenizer], pairs: EncodedPairs) -> None:
    old = identity_positions(pairs)

    def first_only(positions: Ids, before: Sides[Ids], after: Sides[Ids]) -> Ids:
        assert len(positions) == len(before.tgt)
        assert before.src.tolist() != after.src.tolist()
        return np.array([0] + [NONE] * (len(after.tgt) - 1), dtype=np.int32)

    for realign, of_first in ((None, NONE), (first_only, 0)):
        capitals = CAPITALS if realign is None else Transform("capitals", 0.3, upper, realign)
        changed, positions = make_transforms(tokenizers, capitals)(pairs, old, 1, 0)
        assert positions is not None
        assert positions.dtype == np.int16
        assert len(positions) == len(changed.tgt.ids)
        indices = differing(pairs, changed)
        for i, (before, after) in enumerate(
            zip(rows_of(old, pairs), rows_of(positions, changed), strict=True)
        ):
            expected = [of_first] + [NONE] * (len(changed.tgt[i]) - 1) if i in indices else before
            assert after == expected


def make_stream(pairs: EncodedPairs, transforms: Transforms | None, **which: Any) -> BatchStream:
    return BatchStream(
        pairs=pairs, batch_tokens=200, num_micro_batches=2, seed=3, transforms=transforms, **which
    )


def take(stream: BatchStream, position: tuple[int, int], num_steps: int) -> list[Any]:
    """The tensors of each batch of some steps."""
    taken = []
    for _ in range(num_steps):
        batches, _, position = stream.take(position)
        for batch in batches:
            taken.append(
                [value.tolist() for value in vars(batch).values() if isinstance(value, torch.Tensor)]
            )
    return taken


@pytest.mark.parametrize("is_aligned", [False, True])
def test_batches_are_made_of_what_an_epoch_has_and_are_the_same_on_resuming(
    tokenizers: Sides[Tokenizer], pairs: EncodedPairs, is_aligned: bool
) -> None:
    transforms = make_transforms(tokenizers, CAPITALS)
    positions = identity_positions(pairs) if is_aligned else None
    stream = make_stream(pairs, transforms, src_positions=positions, unknown_share=0.2)
    changed, new_positions = transforms(pairs, positions, 3, 1)
    epoch = stream.epoch(1)
    assert differing(epoch.pairs, changed) == []
    assert stream.num_target_tokens(1) == int(changed.tgt.lengths.sum())
    for number, indices in enumerate(epoch.batches):
        batch = stream.batch_of(1, number)
        assert max(batch.src_ids.numel(), batch.labels.numel()) <= 200
        assert batch.num_target_tokens == int(changed.tgt.lengths[indices].sum())
        if new_positions is not None:
            assert batch.alignment is not None
            rows = rows_of(new_positions, changed)
            for row, index in zip(batch.alignment.tolist(), indices.tolist(), strict=True):
                assert row[: len(rows[index])] == rows[index]
    whole = take(stream, (1, 0), stream.num_steps(1))
    again = make_stream(pairs, transforms, src_positions=positions, unknown_share=0.2)
    assert take(again, (1, 4), stream.num_steps(1) - 2) == whole[4:]
    assert whole != take(stream, (2, 0), stream.num_steps(2))


def test_bpe_dropout_segments_the_changed_text(tokenizers: Sides[Tokenizer], pairs: EncodedPairs) -> None:
    transforms = make_transforms(tokenizers, CAPITALS)
    dropouts = Sides(*(BpeDropout(side, share=0.5, max_length=100) for side in tokenizers))
    epoch = make_stream(pairs, transforms, bpe_dropouts=dropouts).epoch(0).pairs
    changed, _ = transforms(pairs, None, 3, 0)
    assert as_text(epoch, tokenizers) == as_text(changed, tokenizers)
    assert len(differing(epoch, changed)) > 0.5 * len(pairs)


def test_without_a_change_the_arrays_are_those_of_the_corpus(
    tokenizers: Sides[Tokenizer], pairs: EncodedPairs
) -> None:
    positions = identity_positions(pairs)
    never = Transform("never", 0.0, upper)
    for transforms in (None, make_transforms(tokenizers), make_transforms(tokenizers, never)):
        epoch = make_stream(pairs, transforms, src_positions=positions).epoch(0)
        assert epoch.pairs is pairs
        assert epoch.src_positions is positions
