"""Nothing is drawn on a terminal before the command line has asked for it."""

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from functools import partial

import pytest
from tqdm import tqdm

from mt import display
from mt.config.data import DataConfig, TokenizerConfig
from mt.data.batches.dataset import encode_pairs
from mt.data.corpus import load_corpus
from mt.data.tokenizers.train import train_tokenizer
from mt.display import show_progress_bars, track
from mt.evaluation.analysis import count_words
from mt.evaluation.scores import score_with_confidence


@pytest.fixture(autouse=True)
def bars_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "_new_bar", None)


# Otherwise tqdm draws what takes no time only once.
BAR = partial(tqdm, mininterval=0, miniters=1)


@contextmanager
def terminal() -> Iterator[io.StringIO]:
    """Replaces stderr; a fixture cannot, because pytest replaces it again before the test."""
    with redirect_stderr(io.StringIO()) as drawn, pytest.MonkeyPatch.context() as patch:
        patch.setattr(display, "terminal_width", lambda: 80)
        yield drawn


def work_on_a_corpus() -> None:
    corpus = load_corpus(DataConfig(path="builtin:reverse", src="a", tgt="b", num_train_pairs=200))
    tokenizer = train_tokenizer(corpus.train["src"], TokenizerConfig())
    encode_pairs(corpus.train, tokenizer, tokenizer, max_length=None)
    lines = ["one two three four five", "six seven eight nine"]
    count_words(lines, lines)
    score_with_confidence(lines, lines)


def test_a_library_draws_nothing() -> None:
    with terminal() as drawn:
        work_on_a_corpus()
    assert drawn.getvalue() == ""


def test_a_program_may_ask_for_bars() -> None:
    show_progress_bars(BAR)
    with terminal() as drawn:
        work_on_a_corpus()
    for description in ("reading", "encoding", "counting words", "scoring"):
        assert f"{description}:" in drawn.getvalue()


def test_without_a_terminal_there_are_no_bars() -> None:
    show_progress_bars(BAR)
    with redirect_stderr(io.StringIO()) as drawn:
        work_on_a_corpus()
    assert drawn.getvalue() == ""


def test_chunks_are_counted_by_their_size() -> None:
    show_progress_bars(BAR)
    chunks = ["abcd", "abcd", "ab"]
    with terminal() as drawn:
        assert list(track(chunks, "cutting", unit="letters", total=10, size=len)) == chunks
    assert "| 8/10 letters [" in drawn.getvalue()
    assert "| 10/10 letters [" in drawn.getvalue()


def test_all_items_pass_with_and_without_a_bar() -> None:
    def numbers() -> Iterator[int]:
        yield from range(5)

    assert list(track(numbers(), "counting", unit="numbers")) == [0, 1, 2, 3, 4]
    show_progress_bars(BAR)
    with terminal():
        assert list(track(numbers(), "counting", unit="numbers")) == [0, 1, 2, 3, 4]
