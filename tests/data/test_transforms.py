"""Transforms: what is changed follows from the epoch and the row alone, and nothing else is touched."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from mt.config.data import TokenizerConfig
from mt.data.batches.alignment import NONE
from mt.data.batches.bpe_dropout import BpeDropout
from mt.data.batches.dataset import encode_pairs
from mt.data.batches.pairs import EncodedPairs, Ids
from mt.data.batches.stream import BatchStream
from mt.data.batches.transforms import Transform, Transforms
from mt.data.tokenizers.train import train_tokenizer
from mt.sides import Sides

# Some are dropped, so that the pair at an index is not that of the row.
TEXTS = [f"{'x ' * (i % 7)}the man number {i}" if i % 9 else "" for i in range(300)]
CORPUS = datasets.Dataset.from_dict({"src": TEXTS, "tgt": [text[::-1] for text in TEXTS]})
LINES = [*CORPUS["src"], *CORPUS["tgt"]]
TOKENIZER = train_tokenizer(
    [*LINES, *(line.upper() for line in LINES)], TokenizerConfig(kind="bpe", max_size=330)
)
TOKENIZERS = Sides(TOKENIZER, TOKENIZER)


def encoded(max_length: int = 40) -> EncodedPairs:
    return encode_pairs(CORPUS, TOKENIZERS, max_length=max_length)[0]


PAIRS = encoded()


def upper(row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
    """Capitals on the source; the target has its row, and a number that is drawn."""
    return Sides(text.src.upper(), f"{row} {generator.integers(100)}")


CAPITALS = Transform("capitals", 0.3, upper)


def make_transforms(*in_order: Transform, max_length: int = 40) -> Transforms:
    return Transforms(in_order, CORPUS, TOKENIZERS, max_length)


def changed_by(*in_order: Transform, seed: int = 1, epoch: int = 0, max_length: int = 40) -> EncodedPairs:
    return make_transforms(*in_order, max_length=max_length)(PAIRS, seed, epoch)


def as_text(pairs: EncodedPairs) -> list[tuple[str, str]]:
    src, tgt = ([TOKENIZER.decode(ids.tolist()) for ids in side] for side in (pairs.src, pairs.tgt))
    return list(zip(src, tgt, strict=True))


def differing(one: EncodedPairs, other: EncodedPairs = PAIRS) -> list[int]:
    """The indices of the pairs that differ in any id."""
    assert len(one) == len(other)
    sides = (one.src, other.src), (one.tgt, other.tgt)
    return [
        i for i in range(len(one)) if not all(np.array_equal(ours[i], theirs[i]) for ours, theirs in sides)
    ]


def test_the_row_of_each_pair_is_known_also_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MT_CACHE", str(tmp_path))
    monkeypatch.setattr("mt.data.cache.MANY_PAIRS", 0)
    for _ in range(2):
        pairs, dropped = encode_pairs(CORPUS, TOKENIZERS, max_length=40)
        assert dropped["empty"] > 0
        assert pairs.rows is not None
        assert [CORPUS[row]["src"] for row in pairs.rows.tolist()] == [src for src, _ in as_text(pairs)]


def test_a_share_of_rows_has_another_text_in_each_epoch_and_for_each_seed_and_purpose() -> None:
    epochs = [changed_by(CAPITALS, seed=seed, epoch=epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    epochs.append(changed_by(CAPITALS._replace(purpose="other")))
    assert differing(epochs[0], changed_by(CAPITALS)) == []
    assert len({tuple(differing(changed)) for changed in epochs}) == len(epochs)
    before, texts = as_text(PAIRS), [as_text(changed) for changed in epochs]
    assert PAIRS.rows is not None
    for changed, after in zip(epochs, texts, strict=True):
        indices = differing(changed)
        assert 0.2 * len(PAIRS) < len(indices) < 0.4 * len(PAIRS)
        for side in (changed.src, changed.tgt):
            assert side.lengths.tolist() == [len(ids) + 1 for ids in side]
            assert [array.dtype for array in (side.ids, side.lengths)] == ["i4", "i4"]
        for i in indices:
            assert after[i][0] == before[i][0].upper()
            assert after[i][1].split()[0] == str(PAIRS.rows[i])
        # Each row has a draw of its own.
        assert len({after[i][1].split()[1] for i in indices}) > 20
    assert any(texts[0][i] != texts[1][i] for i in {*differing(epochs[0])} & {*differing(epochs[1])})


def test_the_draws_of_a_row_depend_neither_on_which_others_are_kept_nor_on_how_many_are_changed_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fewer = encoded(max_length=int(np.median(PAIRS.src.lengths)))
    assert 0 < len(fewer) < len(PAIRS)
    drawn = []
    for some, chunk_size in ((PAIRS, 1000), (PAIRS, 7), (fewer, 7)):
        monkeypatch.setattr("mt.data.batches.transforms.CHUNK_SIZE", chunk_size)
        changed = make_transforms(CAPITALS)(some, 1, 0)
        assert some.rows is not None
        drawn.append(dict(zip(some.rows.tolist(), as_text(changed), strict=True)))
    assert drawn[0] == drawn[1]
    assert drawn[2].items() <= drawn[0].items()


@pytest.mark.parametrize("text", ["", "long " * 40])
@pytest.mark.parametrize("side", ["src", "tgt"])
def test_what_would_be_empty_or_too_long_stays(side: str, text: str) -> None:
    spoil = Transform("spoil", 1.0, lambda row, old, _: old._replace(**{side: text}))
    assert differing(changed_by(spoil)) == []


def test_the_longest_that_fits_is_taken() -> None:
    free = changed_by(CAPITALS, max_length=1000)
    longest = np.maximum(free.src.lengths, free.tgt.lengths)
    limit = int(np.median(longest[differing(free)]))
    bound = changed_by(CAPITALS, max_length=limit)
    assert differing(bound) == [i for i in differing(free) if longest[i] <= limit]


def test_a_row_is_changed_by_the_first_transform_that_draws_it() -> None:
    shout = Transform("shout", 0.5, lambda _, text, __: Sides(text.src + "!", text.tgt))
    both, capitals, shouted = (changed_by(*these) for these in ((CAPITALS, shout), (CAPITALS,), (shout,)))
    assert 0 < len({*differing(capitals)} & {*differing(shouted)}) < len(differing(shouted))
    expected = as_text(shouted)
    for i in differing(capitals):
        expected[i] = as_text(capitals)[i]
    assert as_text(both) == expected


def aligned() -> EncodedPairs:
    """The pairs with an alignment that goes up on both sides."""
    rows = [
        np.minimum(np.arange(len(tgt)), len(src) - 1) for src, tgt in zip(PAIRS.src, PAIRS.tgt, strict=True)
    ]
    return replace(PAIRS, src_positions=np.concatenate(rows).astype(np.int16))


def links_of(pairs: EncodedPairs) -> list[list[int]]:
    assert pairs.src_positions is not None
    assert pairs.src_positions.dtype == np.int16
    return [part.tolist() for part in np.split(pairs.src_positions, pairs.tgt.offsets[1:-1])]


def first_only(positions: Ids, before: Sides[Ids], after: Sides[Ids]) -> Ids:
    assert len(positions) == len(before.tgt)
    assert before.src.tolist() != after.src.tolist()
    return np.array([0] + [NONE] * (len(after.tgt) - 1), dtype=np.int32)


def test_the_alignment_follows() -> None:
    for realign, of_first in ((None, NONE), (first_only, 0)):
        changed = make_transforms(CAPITALS._replace(realign=realign))(aligned(), 1, 0)
        expected = links_of(aligned())
        for i in differing(changed):
            expected[i] = [of_first] + [NONE] * (len(changed.tgt[i]) - 1)
        assert links_of(changed) == expected


def make_stream(transforms: Transforms | None, pairs: EncodedPairs = PAIRS, **which: Any) -> BatchStream:
    return BatchStream(
        pairs=pairs, batch_tokens=200, num_micro_batches=2, seed=3, transforms=transforms, **which
    )


def test_batches_are_made_of_what_an_epoch_has_whatever_was_before_it() -> None:
    transforms = make_transforms(CAPITALS)
    changed = transforms(aligned(), 3, 1)
    stream, resumed = (make_stream(transforms, aligned()) for _ in range(2))
    assert differing(stream.epoch(0).pairs, changed)
    assert differing(stream.epoch(1).pairs, changed) == differing(resumed.epoch(1).pairs, changed) == []
    assert stream.num_target_tokens(1) == int(changed.tgt.lengths.sum())
    rows = links_of(changed)
    for number, indices in enumerate(stream.epoch(1).batches):
        batch = stream.batch_of(1, number)
        assert max(batch.src_ids.numel(), batch.labels.numel()) <= 200
        assert batch.num_target_tokens == int(changed.tgt.lengths[indices].sum())
        assert batch.alignment is not None
        for row, index in zip(batch.alignment.tolist(), indices.tolist(), strict=True):
            assert row[: len(rows[index])] == rows[index]


def test_bpe_dropout_segments_the_changed_text() -> None:
    dropout = BpeDropout(TOKENIZER, share=0.5, max_length=100)
    epoch = make_stream(make_transforms(CAPITALS), bpe_dropouts=Sides(dropout, dropout)).epoch(0).pairs
    changed = changed_by(CAPITALS, seed=3)
    assert as_text(epoch) == as_text(changed)
    assert len(differing(epoch, changed)) > 0.5 * len(PAIRS)


def test_without_a_change_the_arrays_are_those_of_the_corpus() -> None:
    pairs = aligned()
    for transforms in (None, make_transforms(), make_transforms(Transform("never", 0.0, upper))):
        assert make_stream(transforms, pairs).epoch(0).pairs is pairs
