from hypothesis import given
from hypothesis import strategies as st

from mt.inference.grouping import group_by_length


@given(
    lengths=st.lists(st.integers(1, 60), max_size=300),
    most_sentences=st.integers(1, 200),
    most_positions=st.integers(1, 2000),
    beam_size=st.sampled_from([1, 5]),
    num_in_parallel=st.integers(1, 4),
)
def test_each_sentence_is_in_one_batch_and_batches_at_once_fit_together(
    lengths: list[int],
    most_sentences: int,
    most_positions: int,
    beam_size: int,
    num_in_parallel: int,
) -> None:
    batches = group_by_length(
        lengths,
        most_sentences=most_sentences,
        most_positions=most_positions,
        beam_size=beam_size,
        num_in_parallel=num_in_parallel,
    )
    assert sorted(place for batch in batches for place in batch) == [*range(len(lengths))]
    for batch in batches:
        ordered = [lengths[place] for place in batch]
        assert ordered == sorted(ordered, reverse=True)
        assert len(batch) <= max(1, most_sentences // num_in_parallel)
        assert len(batch) == 1 or ordered[0] * len(batch) <= most_positions / num_in_parallel
    longest = [lengths[batch[0]] for batch in batches]
    assert longest == sorted(longest, reverse=True)
