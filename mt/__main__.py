"""The `mt` command, also as ``python -m mt``: on some systems another `mt` stands first on the path."""

import os
import sys

from mt.cli.app import app
from mt.errors import MtError

USER_ERROR = 2
INTERRUPTED = 130


def main() -> None:
    """Run a command; an error of the user's is one sentence on stderr and exit code 2."""
    try:
        app()
    except MtError as error:
        print(f"mt: {error}", file=sys.stderr)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has enough, as in `mt translate ... | head`. Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
