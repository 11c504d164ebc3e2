import random
import tracemalloc
from collections import Counter

from mt.builtin.reverse import MAX_WORDS, MIN_WORDS, WORDS, reverse_pairs


def test_the_target_is_the_source_in_reversed_order() -> None:
    for source, target in reverse_pairs("train", 500):
        assert target.split() == source.split()[::-1]


def test_at_least_100_distinct_lower_case_words() -> None:
    assert len(set(WORDS)) == len(WORDS) >= 100
    assert all(word.isalpha() and word.islower() for word in WORDS)


def test_words_and_lengths_are_uniform() -> None:
    sources = [source.split() for source, _ in reverse_pairs("train", 13_000)]
    lengths = Counter(map(len, sources))
    assert sorted(lengths) == list(range(MIN_WORDS, MAX_WORDS + 1)) == list(range(4, 17))
    # About 1,000 of each length and 850 of each word: five standard deviations on either side.
    assert all(840 < count < 1_160 for count in lengths.values())
    words = Counter(word for source in sources for word in source)
    mean = words.total() / len(WORDS)
    assert len(words) == len(WORDS)
    assert all(abs(count - mean) < 5 * mean**0.5 for count in words.values())


def test_splits_are_disjoint() -> None:
    train = {source for source, _ in reverse_pairs("train", 5_000)}
    validation = {source for source, _ in reverse_pairs("validation", 1_000)}
    test = {source for source, _ in reverse_pairs("test", 1_000)}
    assert not train & validation | train & test | validation & test


def test_pairs_are_distinct_and_always_the_same() -> None:
    pairs = list(reverse_pairs("test", 1_000))
    assert len(set(pairs)) == 1_000
    assert list(reverse_pairs("test", 10)) == pairs[:10]


def test_a_pair_takes_few_bytes() -> None:
    tracemalloc.start()
    try:
        for number, _ in enumerate(reverse_pairs("train", 8_000)):
            if number == 4_000:
                before, _ = tracemalloc.get_traced_memory()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 4_000 * 30


def test_the_global_random_generator_is_left_alone() -> None:
    random.seed(1)
    before = random.getstate()
    list(reverse_pairs("test", 20))
    assert random.getstate() == before


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
