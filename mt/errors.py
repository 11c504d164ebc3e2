"""The errors that a user can see: each is a sentence that says what is wrong, where, and what to do."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Self


class Remedy(Enum):
    """What to do about an error, in general words; the command line gives it as flags."""

    OTHER_RUN = "use another run directory"
    START_OVER = "start the run over, with the old one moved aside"
    OTHER_CHECKPOINT = "use another checkpoint"
    COMPUTE_ON_CPU = "compute on the CPU"
    OTHER_PRECISION = "use another precision, such as auto"
    COMPUTE_IN_FLOAT32 = "compute in float32"
    GIVE_REFERENCES = "give the references as a file"
    OTHER_SPLIT = "name the split that they belong to"
    WRITE_RECIPE = "write that recipe to a file"
    TRAIN_ONE = "train one"
    RESUME = "resume that run"
    OTHER_TEST_SET = "name the test set that they belong to"
    SKIP_LINE = "to leave it out, start after it"
    OTHER_ADDRESS = "serve at another address"


class MtError(Exception):
    """Base class of all errors caused by the input; the command line prints them and exits with code 2.

    Attributes:
        message: What is wrong, where, and what to do about it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


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


def with_remedies(message: str, remedies: Sequence[str]) -> str:
    """The message, then a sentence such as "Do this, or do that."; only the message if there are none."""
    if not remedies:
        return message
    sentence = ", or ".join(remedies)
    return f"{message} {sentence[0].upper()}{sentence[1:]}."


def closest(word: str, known: Iterable[str]) -> str | None:
    """The most similar of ``known``, or else one that begins with ``word`` or is its beginning."""
    spellings = {name.lower(): name for name in known if name}
    word = word.lower()
    similar = get_close_matches(word, spellings, n=1)
    if len(word) > 1:
        similar += [name for name in spellings if name.startswith(word) or word.startswith(name)]
    return spellings[similar[0]] if similar else None
