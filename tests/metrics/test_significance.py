"""The paired bootstrap against sacreBLEU's command line, and by what it must say."""

from collections.abc import Callable
from typing import Any

import pytest

from mt.errors import DataError
from mt.metrics import significance
from mt.metrics.significance import paired_bootstrap

REFERENCES = [f"der {word} Hund läuft über die Straße Nummer {i}." for i, word in enumerate("abcdefghij" * 3)]
GOOD = [line.replace("Hund", "Mund") if i % 5 == 0 else line for i, line in enumerate(REFERENCES)]
BAD = [line.replace("läuft über", "geht auf") if i % 2 else line for i, line in enumerate(REFERENCES)]


def test_p_values_equal_the_command_line(command_line: Callable[..., list[dict[str, Any]]]) -> None:
    arguments = ["-m", "bleu", "chrf", "ter", "--chrf-word-order", "2", "--paired-bs", "-w", "8"]
    baseline, system = command_line(BAD, REFERENCES, *arguments, other=GOOD)
    found = paired_bootstrap(BAD, GOOD, REFERENCES)
    assert list(found) == ["bleu", "chrfpp", "ter"]
    for difference in found.values():
        name = difference.first.name
        assert difference.first.value == pytest.approx(baseline[name]["score"], abs=1e-6)
        assert difference.second.value == pytest.approx(system[name]["score"], abs=1e-6)
        assert difference.p_value == pytest.approx(system[name]["p_value"], abs=1e-9)
        assert difference.second.interval == pytest.approx(
            (
                system[name]["mean"] - system[name]["ci"],
                system[name]["mean"] + system[name]["ci"],
            ),
            abs=1e-6,
        )
        assert difference.gain == pytest.approx(difference.second.value - difference.first.value)


def test_what_is_clearly_better_is_no_chance_and_what_is_equal_is() -> None:
    assert paired_bootstrap(BAD, REFERENCES, REFERENCES)["bleu"].p_value < 0.01
    same = paired_bootstrap(GOOD, GOOD, REFERENCES)["bleu"]
    assert same.gain == 0
    assert same.p_value == 1


def test_missing_lines_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="29 translations .* 30 references"):
        paired_bootstrap(GOOD, BAD[1:], REFERENCES)
    monkeypatch.setattr(significance, "MAX_RESAMPLED_LINES", 29)
    with pytest.raises(DataError, match="30 sentences are too many for the paired bootstrap"):
        paired_bootstrap(GOOD, BAD, REFERENCES)
