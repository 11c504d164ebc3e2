"""The `mt` command, also as ``python -m mt``: on some systems another `mt` stands first on the path."""

import io
import sys
import threading

from mt.cli.app import app
from mt.cli.streams import survive_losing_stderr
from mt.display import visible
from mt.errors import MtError

USER_ERROR = 2
INTERRUPTED = 130


def main() -> None:
    """Run a command; an error of the user's is one sentence on stderr and exit code 2."""
    survive_losing_stderr()
    threading.excepthook = _leave_full_disks_to_the_main_thread
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What goes in is UTF-8, and so is what comes out, whatever the locale says.
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        app()
    except MtError as error:
        print(f"mt: {visible(str(error))}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        # A full disk, a folder that may not be written. An output pipe that was closed is typer's affair.
        where = f"{error.filename}: " if error.filename else ""
        print(f"mt: {visible(f'{where}{error.strerror or error}')}.", file=sys.stderr)
        sys.exit(USER_ERROR)


def _leave_full_disks_to_the_main_thread(arguments: threading.ExceptHookArgs) -> None:
    """TensorBoard writes in a thread, and raises there and in the main thread: one sentence is enough."""
    if not issubclass(arguments.exc_type, OSError):
        threading.__excepthook__(arguments)


if __name__ == "__main__":
    main()
