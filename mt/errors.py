"""The errors that a user can see: each is a sentence that says what is wrong, where, and what to do."""

from collections.abc import Mapping

from mt.memory import is_out_of_memory


class MtError(Exception):
    """Base class of all errors caused by the input; the command line prints them and exits with code 2."""


class Interrupted(BaseException):
    """The run must stop, and its current work is abandoned. Not an Exception, which libraries may swallow."""


class ConfigError(MtError):
    """A config file or an override cannot be used."""


class DataError(MtError):
    """A corpus, a sentence or a tokenizer cannot be read or is invalid."""


class SplitError(DataError):
    """A corpus has no such split, or is too small to hold it out."""


class LinesError(DataError):
    """Some of the lines that were given cannot be used."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """``reasons`` says what is wrong with each, by its number."""
        super().__init__(reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return self.reasons[min(self.reasons)]


class OverflowedLinesError(LinesError):
    """The model's logits for some lines are NaN or infinite."""


class CheckpointError(MtError):
    """A checkpoint is missing, damaged, or was written by a newer version."""


class RunError(MtError):
    """A run is missing, locked or unsuitable for what was requested, or cannot be trained further."""


class EngineError(MtError):
    """A device is missing, or what computes there does not do what was requested, or not as it should."""


def is_bug(error: Exception) -> bool:
    """Whether this error is neither the user's, nor that of a file or a full disk, nor of full memory."""
    return not isinstance(error, MtError | OSError | MemoryError) and not is_out_of_memory(error)
