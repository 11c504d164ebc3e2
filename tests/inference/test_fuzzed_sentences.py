"""Sentences at random, such as nobody would write: each is translated to one line, or answered with one."""

from datetime import timedelta

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mt.errors import DataError
from mt.inference.model_translator import ModelTranslator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam

NASTY = st.sampled_from(
    [
        "\0", "\x1b[31m", "\u202e", "\ufeff", "\u2028", "\x85", "\r", "\n", "\t", "<unk>", "</s>", "￭", "▁",
        "[UNK]", "é", "ﬁ", "中文", "ไทย", "😀", "\ue000", "\U0010ffff", "the dog", "sees", ".", "!",
    ]
)  # fmt: skip
HALF = st.sampled_from(["\ud800", "\udfff"])
LONG = st.sampled_from(["x" * 100_000, "the dog " * 2_000, "." * 5_000, "\u0301" * 100_000])
SENTENCES = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.lists(NASTY, max_size=12).map(" ".join),
        st.lists(NASTY, max_size=12).map("".join),
    ),
    min_size=1,
    max_size=4,
)


def test_each_line_is_translated_to_one_line(trained: RunDirectory) -> None:
    translator = ModelTranslator.from_run(trained, device=torch.device("cpu"))

    @settings(
        max_examples=60,
        deadline=timedelta(seconds=120),
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(SENTENCES, st.sampled_from([None, Beam(3, 1.0)]), st.integers(0, 49), st.data())
    def each_line_is_one_line(
        sentences: list[str], strategy: Beam | None, rare: int, data: st.DataObject
    ) -> None:
        if rare == 0:
            sentences = [*sentences, data.draw(LONG)]
        if rare == 1:
            half = data.draw(HALF)
            with pytest.raises(DataError, match=r"has a lone surrogate"):
                translator.translate([*sentences, f"the dog {half}"], strategy=strategy, join_lines=True)
            return
        lines = translator.translate(sentences, strategy=strategy, join_lines=True)
        assert len(lines) == len(sentences)
        for sentence, line in zip(sentences, lines, strict=True):
            assert line == " ".join(line.split())
            assert bool(line) <= bool(sentence.split())
            line.encode()

    each_line_is_one_line()
