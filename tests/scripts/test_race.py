"""The race reports what was measured. The trainings themselves take minutes, and other packages."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU

from scripts.benchmark.race import MARIAN, MT, MT_WITHOUT_AMX, Finish, Race, plot, table

FINISHES = [
    Finish(MARIAN, 10.0, 10.1, 1_500_000, "float32", 31.25, 1.9, 0.0),
    Finish(MT, 10.0, 9.6, 2_000_000, "bf16", 35.5, 2.0, 0.012),
    Finish(MT_WITHOUT_AMX, 10.0, 9.7, 1_200_000, "float32", 30.5, 2.0, 0.0),
    Finish(MT, 5.0, 4.9, 1_000_000, "bf16", 28.0, 2.0, 0.0),
]


def test_the_table_has_a_row_for_each_finish_in_the_order_of_the_minutes() -> None:
    rows = table(FINISHES).splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| 5", "| 10", "| 10", "| 10"]
    assert "| 10 | mt | 9.6 | 2,000,000 | bf16 | 35.50 | 1.2% |" in rows


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot(FINISHES, tmp_path / "race.png", "two cores")
    assert (tmp_path / "race.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("side", "instructions"), [(MT, None), (MT_WITHOUT_AMX, "AVX512_CORE")])
def test_without_amx_precision_is_chosen_and_the_run_computed_as_on_such_a_processor(
    side: str, instructions: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TrainedError(Exception):
        pass

    seen: list[tuple[str, str | None]] = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> None:
        if "evaluate" in command:
            raise TrainedError
        seen.append((command[3], env.get("ONEDNN_MAX_CPU_ISA")))

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(TrainedError):
        Race(tmp_path, "en", "de", tmp_path, {}).run_mt(side, 5.0, None)
    assert seen == [("init", instructions), ("train", instructions)]


def test_text_without_spaces_is_scored_by_characters(tmp_path: Path) -> None:
    rows = [{"en": "a", "ja": "これは新しいファイルです"}, {"en": "b", "ja": "設定を保存しました"}]
    (tmp_path / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    hypotheses = tmp_path / "hypotheses.txt"
    hypotheses.write_text("これは古いファイルです\n設定を保存しました\n", encoding="utf-8")
    score = Race(tmp_path, "en", "ja", tmp_path, {})._bleu(hypotheses)
    expected = BLEU(tokenize="char").corpus_score(
        hypotheses.read_text("utf-8").splitlines(), [[row["ja"] for row in rows]]
    )
    assert score == pytest.approx(expected.score)
    # One of two whole lines would be right.
    assert 50 < score < 100
