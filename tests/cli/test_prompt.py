"""`mt translate` on a terminal: a prompt with line editing."""

import builtins
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from mt.cli.lines import Input
from mt.inference.translator import Translator
from tests.fixture_types import Call
from tests.processes import environment

Typing = Callable[..., tuple[int, str, str]]

pytest.importorskip("readline")


@pytest.fixture
def terminal() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A person's end of a terminal, and the prompt that runs on the other."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mt", "translate", "--run", "runs/tiny"]
    settings = environment(TERM="dumb", INPUTRC=os.devnull)
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=settings) as process:
        os.close(theirs)
        yield ours, process
        process.kill()
        os.close(ours)


@pytest.mark.usefixtures("trained")
def test_on_a_terminal_lines_are_edited_and_recalled(terminal: tuple[int, subprocess.Popen[bytes]]) -> None:
    ours, process = terminal
    shown = ""
    # Ctrl-A goes to the beginning of the line, the arrow up recalls it, and Ctrl-D ends.
    for awaited, keys in (
        ("Ctrl-D ends", "dog sees milk.\x01the \r"),
        ("der Hund sieht Milch.", "\x1b[A\r"),
        ("der Hund sieht Milch.", "\x04"),
    ):
        for text in (awaited, "> "):
            while text not in shown:
                assert select.select([ours], [], [], 60)[0], f"no {text!r} in {shown!r}"
                shown += os.read(ours, 10_000).decode(errors="replace")
            shown = shown.partition(text)[2]
        os.write(ours, keys.encode())
    assert process.wait(60) == 0


@pytest.fixture
def typing(call: Call, monkeypatch: pytest.MonkeyPatch) -> Typing:
    """Calls ``mt translate`` as on a terminal, where these lines are typed one after the other."""

    def run(lines: list[str | BaseException], *options: str) -> tuple[int, str, str]:
        left = iter([*lines, EOFError()])

        def ask(shown: str) -> str:
            line = next(left)
            if isinstance(line, BaseException):
                raise line
            return line

        with monkeypatch.context() as patch:
            patch.setattr(builtins, "input", ask)
            patch.setattr(Input, "is_typed", True)
            return call("translate", "--run", "runs/tiny", *options)

    return run


@pytest.mark.usefixtures("trained")
@pytest.mark.parametrize(
    "options",
    [("--beam", "3", "--n-best", "2", "--length-normalization", "mean"), ("--sample", "--seed", "3")],
)
def test_the_prompt_translates_as_the_command_line_does(
    options: tuple[str, ...], typing: Typing, call: Call
) -> None:
    sentences = ["the dog sees milk.", "Anna buys two red apples!", ": my aunt paints the car today."]
    expected = call("translate", "--run", "runs/tiny", *options, *sentences)[1] + "\n"
    for lines in list(sentences), ["\n".join(sentences)]:  # One after the other, and pasted at once.
        shown = typing(lines, *options)[1]
        # Scores of other batches may differ in their last digit.
        for ours, theirs in zip(shown.split(), expected.split(), strict=True):
            assert ours == theirs or float(ours) == pytest.approx(float(theirs), abs=2e-4)
        assert shown.count("\n") == expected.count("\n")


@pytest.mark.usefixtures("trained")
def test_the_prompt_continues_after_errors_and_warns_of_each_line(
    typing: Typing, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_best = Translator.n_best

    def stopped(self: Translator, texts: list[str], **options: object) -> object:
        if texts == ["Anna"]:
            raise KeyboardInterrupt
        return n_best(self, texts, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Translator, "n_best", stopped)
    lines = ["\udcff", "\udcff\udce9", KeyboardInterrupt(), "", "Anna", "the zebra sees milk."]
    code, out, err = typing([*lines, "the zebra sees Zorblat.", "milk " * 16, "the dog sees milk."])
    # Each Ctrl-C, and the end, leave the line.
    assert (code, out[:2], out.splitlines()[-2], out[-2:]) == (0, "\n\n", "der Hund sieht Milch.", "\n\n")
    assert re.findall(r"^mt: .*, line (\d) is not UTF-8", err, re.MULTILINE) == ["1", "2"]
    # Each of its own line, and none of a line without.
    warnings = re.findall(r"^warning: (?:the model does not know )?(.*?)(?:\.| are) ", err, re.MULTILINE)
    assert warnings == ["1 word: zebra", "2 words: zebra, Zorblat", "sentences in 1 line"]
