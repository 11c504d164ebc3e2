"""What is logged, shown on stderr without tearing a progress bar apart."""

import logging
import sys
import textwrap

from mt.cli.streams import escape_on_terminal
from mt.display import show_progress_bars, terminal_width, visible


def show_logs(level: int = logging.INFO) -> None:
    """Show the package's log lines and progress bars on stderr; warnings say that they are some.

    Neither these nor what is written to a terminal on stdout can move the cursor or change colours.
    """
    show_progress_bars()
    escape_on_terminal()
    logger = logging.getLogger("mt")
    logger.setLevel(level)
    logger.propagate = False
    handler = _BesideProgressBar()
    handler.setFormatter(_Plain())
    logger.handlers = [handler]


class _BesideProgressBar(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        tqdm.write(self.format(record), file=sys.stderr)


class _Plain(logging.Formatter):
    """The message alone; in a terminal, lines that are too long are broken between words."""

    def format(self, record: logging.LogRecord) -> str:
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        text = visible(prefix + record.getMessage())
        width = terminal_width()
        return text if width is None else "\n".join(_wrapped(line, width) for line in text.split("\n"))


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    lines = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)
