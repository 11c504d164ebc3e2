"""What can go wrong for a user: each error is one sentence that says what, where and what to do."""

from collections.abc import Mapping


class MtError(Exception):
    """The base of every error that is the input's fault; the command line prints it and exits with 2."""


class ConfigError(MtError):
    """A config file or an override cannot be used."""


class DataError(MtError):
    """A corpus, a sentence or a tokenizer cannot be read or is not what it should be."""


class LinesError(DataError):
    """Some of the lines that were given cannot be used."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """Say what is wrong with the first; ``reasons`` has a sentence for each line, by its number."""
        super().__init__(reasons[min(reasons)])
        self.reasons = reasons


class CheckpointError(MtError):
    """A checkpoint is missing, damaged, or was written by a newer version."""


class RunError(MtError):
    """A run directory is missing, locked, or does not fit what was asked of it."""


class TrainingError(MtError):
    """Training cannot go on: the loss is no number, say, or the device is not there."""


class DeviceError(MtError):
    """The device that was asked for is not there, or cannot do what was asked of it."""
