"""Which own files one training step and one translated sentence visit, and their deepest stack of own frames.

python tests/oracle/walk.py
"""

import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).parents[2]
PACKAGE = f"{ROOT / 'mt'}{os.sep}"
OPTIMIZER = str(Path("torch", "optim", "adam"))
TRAIN = "train --config tiny.yaml --set training.max_steps=1"
TRANSLATE = ["translate", "--run", "runs/tiny", "the dog sees milk."]


class Walk:
    """What a command does in its own files, until ``is_over``; importing a module is not visiting it."""

    def __init__(self, is_over: Callable[[FrameType], bool]) -> None:
        self.files: dict[str, None] = {}
        self.deepest: list[FrameType] = []
        self._is_over = is_over
        self._has_ended = False

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call."""
        if event != "call" or self._has_ended:
            return
        code = frame.f_code
        if self._is_over(frame):
            self._has_ended = True
            self.deepest = own_frames(frame)
        elif code.co_filename.startswith(PACKAGE) and code.co_flags & inspect.CO_OPTIMIZED:
            stack = own_frames(frame)
            if all(each.f_code.co_name != "<module>" for each in stack):
                self.files[code.co_filename.removeprefix(PACKAGE)] = None
                self.deepest = max(self.deepest, stack, key=len)

    def take(self, arguments: list[str]) -> None:
        """Run the command; it ends as commands do."""
        from mt.__main__ import main

        sys.argv = ["mt", *arguments]
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def show(self, title: str) -> None:
        """Print the files in the order of their first visit, and the stack, the command first."""
        print(f"\n{title}: {len(self.files)} files, {len(self.deepest)} frames")
        print("files:", " -> ".join(self.files))
        for depth, frame in enumerate(self.deepest, 1):
            code = frame.f_code
            print(
                f"{depth:4} {code.co_filename.removeprefix(PACKAGE)}:{code.co_firstlineno} {code.co_qualname}"
            )


def own_frames(frame: FrameType | None) -> list[FrameType]:
    """The frames of mt on a stack, outermost first."""
    stack = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            stack.append(frame)
        frame = frame.f_back
    return stack[::-1]


def is_optimizer(frame: FrameType) -> bool:
    """Whether AdamW's step begins."""
    code = frame.f_code
    return code.co_name == "step" and OPTIMIZER in code.co_filename


def main() -> None:
    """Walk through both commands."""
    sys.path.insert(0, str(ROOT))
    from tests.oracle.cases import write_tiny

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["MT_CACHE"] = str(Path(folder) / "cache")
        write_tiny()
        training, translation = Walk(is_optimizer), Walk(lambda frame: False)
        training.take(TRAIN.split())
        translation.take(TRANSLATE)
        os.chdir(ROOT)
    training.show("From a command to AdamW.step")
    translation.show("A sentence translated")


if __name__ == "__main__":
    main()
