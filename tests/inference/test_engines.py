"""Which sentences are searched together."""

from hypothesis import given
from hypothesis import strategies as st

from mt.inference.engines import Sentence, batches_by_length


@given(
    lengths=st.lists(st.integers(1, 60), max_size=300),
    most_tokens=st.integers(1, 2000),
    most_sentences=st.integers(1, 200),
)
def test_each_sentence_is_in_one_batch_of_its_length(
    lengths: list[int], most_tokens: int, most_sentences: int
) -> None:
    batches = batches_by_length(
        [Sentence(1, [0] * (each - 1)) for each in lengths], most_tokens, most_sentences
    )
    assert sorted(index for batch in batches for index in batch) == [*range(len(lengths))]
    ordered = [lengths[index] for batch in batches for index in batch]
    assert ordered == sorted(ordered, reverse=True)
    for batch in batches:
        assert len(batch) <= most_sentences
        assert len(batch) == 1 or lengths[batch[0]] * len(batch) <= most_tokens
