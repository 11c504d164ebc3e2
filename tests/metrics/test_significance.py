"""The paired bootstrap against sacreBLEU's command line, and by what it must say."""

from collections.abc import Callable

import pytest

from mt.errors import DataError
from mt.metrics import significance
from mt.metrics.significance import paired_bootstrap

REFERENCES = [f"der {word} Hund läuft über die Straße Nummer {i}." for i, word in enumerate("abcdefghij" * 3)]
GOOD = [line.replace("Hund", "Mund") if i % 5 == 0 else line for i, line in enumerate(REFERENCES)]
BAD = [line.replace("läuft über", "geht auf") if i % 2 else line for i, line in enumerate(REFERENCES)]


def test_figures_equal_the_command_line(table_of_command_line: Callable[..., list[list[str]]]) -> None:
    arguments = ["-m", "bleu", "chrf", "ter", "--chrf-word-order", "2", "--paired-bs", "-w", "8"]
    baseline, system = table_of_command_line(BAD, GOOD, REFERENCES, *arguments)
    found = paired_bootstrap(BAD, GOOD, REFERENCES)
    assert list(found) == ["bleu", "chrfpp", "ter"]
    for difference, first, second in zip(found.values(), baseline, system, strict=True):
        assert difference.gain == pytest.approx(difference.second.value - difference.first.value)
        for score, cell in ((difference.first, first), (difference.second, second)):
            assert score.interval is not None
            low, high = score.interval
            expected = f"{score.value:.8f} ({(low + high) / 2:.8f} ± {(high - low) / 2:.8f})"
            assert cell.startswith(expected)
        assert f"(p = {difference.p_value:.4f})" in second
        assert 0 < difference.p_value < 1


def test_what_is_clearly_better_is_no_chance_and_what_is_equal_is() -> None:
    assert paired_bootstrap(BAD, REFERENCES, REFERENCES)["bleu"].p_value < 0.01
    same = paired_bootstrap(GOOD, GOOD, REFERENCES)["bleu"]
    assert same.gain == 0
    # Whatever is as good as the other, a difference of nothing or more is certain.
    assert same.p_value == 1


def test_missing_lines_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"29 translations .* 30 references"):
        paired_bootstrap(GOOD, BAD[1:], REFERENCES)
    monkeypatch.setattr(significance, "MAX_RESAMPLED_LINES", 29)
    with pytest.raises(DataError, match="30 sentences are too many for the paired bootstrap"):
        paired_bootstrap(GOOD, BAD, REFERENCES)
