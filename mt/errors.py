"""The errors that a user can see: each is a sentence that says what is wrong, where, and what to do."""

from collections.abc import Mapping
from typing import Self


class MtError(Exception):
    """Base class of all errors caused by the input; the command line prints them and exits with code 2."""


class Interrupted(BaseException):
    """The run must stop, and its current work is abandoned. Not an Exception, which libraries may swallow."""


class ConfigError(MtError):
    """A config file or an override cannot be used."""


class DataError(MtError):
    """A corpus, a sentence or a tokenizer cannot be read or is invalid."""


class SplitError(DataError):
    """A corpus is too small to hold out splits."""


class LinesError(DataError):
    """Some of the lines that were given cannot be used."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """Report the first bad line; ``reasons`` says what is wrong with each, by its number."""
        super().__init__(reasons[min(reasons)])
        self.reasons = reasons

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        """Allow it to be sent to another process."""
        return type(self), (self.reasons,)


class OverflowedLinesError(LinesError):
    """The model's logits for some lines are NaN or infinite."""


class CheckpointError(MtError):
    """A checkpoint is missing, damaged, or was written by a newer version."""


class RunError(MtError):
    """A run directory is missing, locked, or unsuitable for what was requested."""


class TrainingError(MtError):
    """Training cannot continue, for example because the loss is NaN or the device is missing."""


class ExportError(MtError):
    """A model cannot be exported, or the exported model does not translate as it should."""


class DeviceError(MtError):
    """The requested device is missing, or does not support what was requested."""
