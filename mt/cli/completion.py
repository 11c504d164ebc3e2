"""Completion in zsh, which has a completion of its own for another `mt`, that of magnetic tapes."""

from pathlib import Path
from typing import Any

from typer.core import TyperGroup


class Program(TyperGroup):
    """All commands; ``--install-completion`` makes zsh prefer the completion of these."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command; those that install completion end the program."""
        installs = "--install-completion" in args
        try:
            return super().parse_args(ctx, args)
        finally:
            if installs:
                _prefer_ours_in_zsh()


def _prefer_ours_in_zsh() -> None:
    """Load our completion when zsh starts, after ``compinit``, which finds zsh's own ``_mt`` first."""
    script, settings = Path.home() / ".zfunc" / "_mt", Path.home() / ".zshrc"
    line = "source ~/.zfunc/_mt"
    if script.is_file() and settings.is_file():
        text = settings.read_text(encoding="utf-8")
        if line not in text:
            settings.write_text(f"{text.rstrip()}\n{line}\n", encoding="utf-8")
