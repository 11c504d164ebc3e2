"""The `mt` command, also as ``python -m mt``: on some systems another `mt` comes first on the path."""

import io
import os
import sys
from typing import Any

from typer.exceptions import TyperException

from mt import processes, system
from mt.cli.app import app
from mt.cli.logs import survive_losing_stderr
from mt.display import one_line, visible
from mt.errors import MtError
from mt.memory import is_out_of_memory


def main() -> None:
    """Run a command; an error is one sentence, with MT_DEBUG=1 a traceback; exit code 2, 1 for our bugs."""
    if processes.ARE_LAUNCHED:
        system.end_with_parent()
    survive_losing_stderr()
    system.let_threads_look(3000)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Input and output are UTF-8, whatever the locale; copied lines that are not UTF-8 keep their bytes.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        # Completion must be for this command even where `python -m mt` installs it.
        code = app(sys.argv[1:] or ["--help"], prog_name="mt", standalone_mode=False) or 0
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        if os.environ.get("MT_DEBUG"):
            raise
        who = "mt" if processes.IS_FIRST else f"mt: process {processes.RANK}"
        code, sentence = _explain(error)
        print(f"{who}: {visible(sentence)}", file=sys.stderr)
    sys.exit(code)


def _explain(error: Exception) -> tuple[int, str]:
    """The exit code and the sentence for an error that ends the command."""
    if isinstance(error, MtError):
        return 2, str(error)
    if isinstance(error, TyperException):
        usage: Any = error
        where = usage.ctx.command_path if usage.ctx else "mt"
        return 2, f"{usage.format_message().removesuffix('.')} (see {where} --help)."
    if isinstance(error, MemoryError) or is_out_of_memory(error):
        return 1, "there is no memory left for this process: close other programs, or give it less to do."
    if isinstance(error, OSError):
        # Such as a full disk. Typer handles a closed output pipe.
        where = f"{error.filename}: " if error.filename else ""
        return 2, f"{where}{error.strerror or error}."
    if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "datasets", "huggingface_hub"):
        return 2, (
            f"this needs {error.name}, which is not installed here: install mt as docs/installing.md says. "
            "Without it, a run is translated, scored and served that was converted elsewhere."
        )
    what = one_line(f"{type(error).__name__}: {error}")
    # The run's log, if it has the traceback.
    traceback = ", ".join(getattr(error, "__notes__", ())) or "what MT_DEBUG=1 shows"
    return 1, f"this is a bug in mt: {what}. Please report it with {traceback}."


if __name__ == "__main__":
    main()
