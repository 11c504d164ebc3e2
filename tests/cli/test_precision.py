"""`--precision` of `mt translate`, `mt score` and `mt evaluate`: what is computed, and what is printed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mt.run_directory import RunDirectory

Call = Callable[..., tuple[int, str, str]]


def one_pair() -> tuple[Path, Path]:
    source, target = Path("source.txt"), Path("target.txt")
    source.write_text("the dog sees milk.\n")
    target.write_text("der Hund sieht Milch.\n")
    return source, target


pytestmark = pytest.mark.usefixtures("trained")


def test_scores_say_in_which_precision_they_were_computed(call: Call) -> None:
    for precision, said in (("int8", ", computed in int8"), ("float32", "")):
        code, _, err = call("translate", "--n-best", "1", "--precision", precision, "the dog sees milk.")
        assert code == 0
        assert ("scores, computed in int8" in err) == bool(said)
        code, _, err = call("score", "--precision", precision, *one_pair())
        assert code == 0
        assert err.splitlines()[-1].endswith(said)
        assert ("computed in" in err) == bool(said)


def test_evaluation_computes_in_float32_and_keeps_the_translations_of_another_precision_apart(
    call: Call, trained: RunDirectory
) -> None:
    for options, ending in (((), "greedy"), (("--precision", "int8"), "greedy-int8")):
        code, _, err = call("evaluate", "--scores-only", "--run", trained.path, *options)
        assert code == 0
        assert f"greedy search, by torch in {'int8' if options else 'float32'}" in err
        assert f".{ending}." in err


@pytest.mark.parametrize("command", ["translate", "score", "evaluate"])
def test_a_precision_that_this_device_lacks_is_refused_in_a_sentence(command: str, call: Call) -> None:
    given = {"translate": ("the dog",), "score": one_pair(), "evaluate": ()}[command]
    code, out, err = call(command, "--device", "cpu", "--precision", "fp16", *given)
    assert (code, out) == (2, "")
    assert "precision fp16 needs a CUDA device" in err
    assert "--precision auto" in err
