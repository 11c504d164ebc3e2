"""`mt translate` on a terminal: a prompt with line editing."""

import builtins
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
from typing import Self

import pytest

from mt.cli.lines import Input
from mt.inference.translator import Translator
from tests.fixture_types import Call
from tests.processes import environment

Typing = Callable[..., tuple[int, str, str]]

pytest.importorskip("readline")


class Terminal:
    """A command on a pseudo-terminal, as a person at the keyboard has it."""

    def __init__(self, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "mt", *arguments]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(TERM="dumb", INPUTRC=os.devnull),
        )
        os.close(theirs)
        self._pending = ""

    def until(self, text: str) -> str:
        """What is written before ``text``; waits for it."""
        while text not in self._pending:
            assert select.select([self._ours], [], [], 60)[0], f"no {text!r} in {self._pending!r}"
            self._pending += os.read(self._ours, 10_000).decode(errors="replace")
        before, _, self._pending = self._pending.partition(text)
        return before

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.mark.usefixtures("trained")
def test_on_a_terminal_lines_are_edited_and_recalled() -> None:
    with Terminal("translate", "--run", "runs/tiny") as terminal:
        terminal.until("Ctrl-D ends")
        terminal.until("> ")
        # Ctrl-A goes to the beginning of the line.
        terminal.type("dog sees milk.\x01the \r")
        terminal.until("der Hund sieht Milch.")
        terminal.until("> ")
        # The arrow up recalls the line.
        terminal.type("\x1b[A\r")
        terminal.until("der Hund sieht Milch.")
        terminal.until("> ")
        # Ctrl-D ends.
        terminal.type("\x04")
        assert terminal.process.wait(60) == 0


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
    code, out, err = typing([*lines, "the dog sees milk."])
    # Each Ctrl-C, and the end, leave the line.
    assert (code, out[:2], out.splitlines()[-2], out[-2:]) == (0, "\n\n", "der Hund sieht Milch.", "\n\n")
    assert re.findall(r"^mt: .*, line (\d) is not UTF-8", err, re.MULTILINE) == ["1", "2"]
    assert re.findall(r"warning: .* 1 word: (\w+)\.", err) == ["zebra"]
