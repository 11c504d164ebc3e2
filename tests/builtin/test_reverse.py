from collections import Counter

from mt.builtin.reverse import reverse_pairs


def test_the_target_is_the_source_in_reversed_order() -> None:
    for source, target in reverse_pairs("train", 500):
        assert target.split() == source.split()[::-1]


def test_splits_are_disjoint() -> None:
    train = {source for source, _ in reverse_pairs("train", 5_000)}
    validation = {source for source, _ in reverse_pairs("validation", 1_000)}
    test = {source for source, _ in reverse_pairs("test", 1_000)}
    assert not train & validation | train & test | validation & test


def test_pairs_are_distinct_and_always_the_same() -> None:
    pairs = list(reverse_pairs("test", 1_000))
    assert len(set(pairs)) == 1_000
    assert list(reverse_pairs("test", 10)) == pairs[:10]


def test_words_are_reversed_letter_by_letter() -> None:
    pairs = {
        split: list(reverse_pairs(split, 1_000, characters=True)) for split in ("train", "validation", "test")
    }
    assert all(target == source[::-1] for split in pairs.values() for source, target in split)
    sources = [source for split in pairs.values() for source, _ in split]
    assert len(set(sources)) == 3_000
    assert all(source.isalpha() and source.isascii() and source.islower() for source in sources)
    assert sorted({len(source) for source in sources}) == list(range(4, 17))
    assert len(Counter("".join(sources))) == 26
