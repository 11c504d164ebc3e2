"""The `mt` command, also as ``python -m mt``: on some systems another `mt` stands first on the path."""

import errno
import io
import sys
import threading
from typing import NoReturn

from mt.cli.app import app
from mt.cli.remedies import sentence
from mt.cli.streams import survive_losing_stderr
from mt.display import visible
from mt.errors import MtError

OUT_OF_MEMORY = 1
USER_ERROR = 2
INTERRUPTED = 130
# Of torch, of C++, and of the loader of shared libraries; none of them has a class for it.
_TEXTS_OF_NO_MEMORY = ("can't allocate memory", "bad_alloc", "failed to map segment")


def main() -> None:
    """Run a command; an error of the user's is one sentence on stderr and exit code 2."""
    survive_losing_stderr()
    threading.excepthook = _leave_full_disks_to_the_main_thread
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What goes in is UTF-8, and so is what comes out, whatever the locale says; bytes of a line that is
        # copied although it is not UTF-8 come out as they were.
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        app()
    except MtError as error:
        print(f"mt: {visible(sentence(error))}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SystemExit as end:
        # What typer makes of Ctrl-C. The prompt of the shell must not follow the ^C on the same line.
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
        # A full disk, a folder that may not be written. An output pipe that was closed is typer's affair.
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
    """TensorBoard writes in a thread, and raises there and in the main thread: one sentence is enough."""
    if not issubclass(arguments.exc_type, OSError):
        threading.__excepthook__(arguments)


if __name__ == "__main__":
    main()
