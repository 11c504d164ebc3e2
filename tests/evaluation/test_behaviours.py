"""What a model does with text as people write it: measured on the fast engine, kept, and shown everywhere."""

from pathlib import Path

import pytest

from mt.config.load import load_config
from mt.errors import DataError
from mt.evaluation import judge
from mt.evaluation.judge import CLEAN, find_behaviours
from mt.evaluation.record import Behaviour, Behaviours, read_behaviours, to_json
from mt.evaluation.test_set import load_evaluation_set
from mt.inference.translator import EngineChoice, Translator
from mt.run_directory import RunDirectory


def behaviours_of(run: RunDirectory, data: Path, engine: EngineChoice = "auto") -> Behaviours:
    config = load_config(run.config_file)
    test_set = load_evaluation_set(config, "test", path=str(data), direction=(None, "de"))
    return find_behaviours(Translator.from_run(run, engine=engine), test_set)


def of_name(found: Behaviours) -> dict[str, Behaviour]:
    return {behaviour.name: behaviour for behaviour in found.behaviours}


def test_each_behaviour_is_measured_where_there_are_enough_lines(
    several: RunDirectory, forty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge, "LEAST_LINES", 20)
    found = behaviours_of(several, forty / "test", "ctranslate2")
    by_name = of_name(found)
    changed = ["capitals", "title case", "no final punctuation", "typing errors", "two lines joined"]
    assert {*changed} < by_name.keys()
    clean = by_name[CLEAN]
    for behaviour in found.behaviours:
        assert behaviour.num_lines >= judge.LEAST_LINES
        low, high = behaviour.interval
        assert low - 1e-9 <= behaviour.value <= high + 1e-9
        reference = clean.value if behaviour.measure == "BLEU" else 100
        assert behaviour.drop == pytest.approx(reference - behaviour.value)
    assert clean.drop == 0
    worst = sorted(found.behaviours, key=lambda each: -each.drop)
    assert [bool(each.examples) for each in worst] == [True] * 3 + [False] * (len(worst) - 3)
    assert found.engine.startswith("ctranslate2, ")
    several.behaviours_file.write_text(to_json(found), encoding="utf-8")
    assert read_behaviours(several) == found


def test_what_is_found_is_what_the_translator_writes(several: RunDirectory, forty: Path) -> None:
    by_name = of_name(behaviours_of(several, forty / "test"))
    # It knows these words, and is right about most. Capitals cost nothing: it reads words that it knows.
    assert by_name[CLEAN].value > 80
    assert by_name["capitals"].drop < 5
    assert by_name["title case"].drop < 5
    translator = Translator.from_run(several, tgt="de")
    for behaviour in by_name.values():
        for example in behaviour.examples:
            assert translator.translate([example.source], join_lines=True) == [example.translation]


def test_what_has_too_few_lines_is_left_out_and_said(several: RunDirectory, forty: Path) -> None:
    found = behaviours_of(several, forty / "test")
    assert found.left_out["two lines joined"] == "only 20 lines"
    assert found.left_out["longest tenth"] == "only 4 lines"
    assert found.left_out["a negation removed"].startswith("only")
    # Of languages without a list of negations, and scripts without capitals.
    for side in ("en", "de"):
        (forty / f"few.{side}").write_text("the dog sees milk.\n" * 29, encoding="utf-8")
    with pytest.raises(DataError, match=r"has 29 lines, and behaviours need 30 or more"):
        behaviours_of(several, forty / "few")


def test_a_share_has_wilsons_interval() -> None:
    # By the calculator of epitools.ausvet.com.au, two digits.
    assert judge._wilson(81, 100) == pytest.approx((72.22, 87.49), abs=0.01)
    assert judge._wilson(0, 30)[0] == pytest.approx(0)
    assert judge._wilson(30, 30)[1] == pytest.approx(100)


def test_a_sentence_names_the_cure_where_a_model_is_poor() -> None:
    poor = Behaviour("two lines joined", 100, "BLEU", 10.0, (9.0, 11.0), 15.0)
    good = Behaviour("capitals", 100, "BLEU", 24.0, (23.0, 25.0), 1.0)
    weak = Behaviour("title case", 100, "BLEU", 0.1, (0.0, 0.2), 3.0)
    found = Behaviours("data", "en to de", "step_1", "ctranslate2", "signature", [poor, good, weak], {})
    assert found.cures == [
        "two lines joined: 15.0 points lower. What helps: as_written.joined, such as 0.05.",
        "title case: 3.0 points lower. What helps: as_written.title, such as 0.05.",
    ]
