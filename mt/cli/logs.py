"""What is logged, shown on stderr without tearing a progress bar apart."""

import logging

from mt.progress_bars import show_progress_bars


class _BesideProgressBar(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        import sys

        from tqdm import tqdm

        tqdm.write(self.format(record), file=sys.stderr)


def show_logs(level: int = logging.INFO) -> None:
    """Show the package's log lines and progress bars on stderr; warnings say that they are some."""
    show_progress_bars()
    logger = logging.getLogger("mt")
    logger.setLevel(level)
    logger.propagate = False
    handler = _BesideProgressBar()
    handler.setFormatter(_Plain())
    logger.handlers = [handler]


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return prefix + record.getMessage()
