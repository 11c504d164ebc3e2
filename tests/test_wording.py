import pytest

from mt.wording import counted


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 checkpoints"), (1, "1 checkpoint"), (2, "2 checkpoints"), (2000, "2,000 checkpoints")],
)
def test_a_number_agrees_with_its_noun(number: int, said: str) -> None:
    assert counted(number, "checkpoint") == said
