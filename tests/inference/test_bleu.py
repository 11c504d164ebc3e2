"""BLEU of translations, by the tokenizer that the script of the references requires."""

import pytest

from mt.inference.bleu import bleu_tokenizer


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["the dog", "12 .,"], "13a"),
        (["他说 a b"], "13a"),
        (["他说 a", "3 _"], "zh"),
        # A tenth of the letters may be of another unsegmented script.
        (["中" * 9 + "の"], "zh"),
        (["中" * 8 + "の"], "char"),
        (["ผมชื่อ"], "char"),
    ],
)
def test_bleu_is_computed_of_characters_where_most_words_have_no_spaces(
    texts: list[str], expected: str
) -> None:
    assert bleu_tokenizer(texts) == expected
