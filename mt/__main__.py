"""The `mt` command, also as ``python -m mt``: on some systems another `mt` comes first on the path."""

import errno
import io
import sys
import threading
from typing import NoReturn

from mt import processes
from mt.cli.app import app
from mt.cli.logs import survive_losing_stderr
from mt.display import visible
from mt.errors import MtError

OUT_OF_MEMORY = 1
USER_ERROR = 2
INTERRUPTED = 130
# Messages of torch, C++ and the dynamic linker, none of which raises a MemoryError.
_TEXTS_OF_NO_MEMORY = ("can't allocate memory", "bad_alloc", "failed to map segment")


def main() -> None:
    """Run a command; a user error is one sentence on stderr and exit code 2."""
    processes.end_with_launcher()
    survive_losing_stderr()
    processes.let_threads_look(3000)
    threading.excepthook = _leave_full_disks_to_the_main_thread
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Input and output are UTF-8, whatever the locale; copied lines that are not UTF-8 keep their bytes.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        # Completion must be for this command even where `python -m mt` installs it.
        app(prog_name="mt")
    except MtError as error:
        who = "mt" if processes.is_first() else f"mt: process {processes.rank()}"
        print(f"{who}: {visible(str(error))}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        # Typer raises this for Ctrl-C. The shell's prompt must not follow the ^C on the same line.
        if end.code == INTERRUPTED and sys.stderr.isatty():
            print(file=sys.stderr)
        raise
    except MemoryError:
        _end_out_of_memory()
    except (RuntimeError, ImportError) as error:
        if not any(text in str(error) for text in _TEXTS_OF_NO_MEMORY):
            raise
        _end_out_of_memory()
    except OSError as error:
        if error.errno == errno.ENOMEM:
            _end_out_of_memory()
        # For example a full disk, or a folder without write permission. Typer handles a closed output pipe.
        where = f"{error.filename}: " if error.filename else ""
        print(f"mt: {visible(f'{where}{error.strerror or error}')}.", file=sys.stderr)
        sys.exit(USER_ERROR)


def _end_out_of_memory() -> NoReturn:
    print(
        "mt: the system has no memory left for this process. Close other programs, raise its limit "
        "(ulimit -v), or give it less to do.",
        file=sys.stderr,
    )
    sys.exit(OUT_OF_MEMORY)


def _leave_full_disks_to_the_main_thread(arguments: threading.ExceptHookArgs) -> None:
    """TensorBoard raises both in its own thread and in the main thread; one message is enough."""
    if not issubclass(arguments.exc_type, OSError):
        threading.__excepthook__(arguments)


if __name__ == "__main__":
    main()
