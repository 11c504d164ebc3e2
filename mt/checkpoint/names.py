"""Names in the folder ``checkpoints/``: which are checkpoints, what a pointer says, what does not belong."""

import re
from pathlib import Path

from mt.errors import CheckpointError
from mt.regular_files import read_text

STEP_NAME = re.compile(r"step_\d{7,18}")
AVERAGE_NAME = re.compile(r"average_\d{7,18}")
_MAX_POINTER_BYTES = 100


def names_in(directory: Path, pattern: re.Pattern[str]) -> list[str]:
    """The names in ``directory`` that fit ``pattern``, from the oldest step to the newest.

    Raises:
        CheckpointError: If the folder cannot be read; one that is missing has none.
    """
    try:
        paths = list(directory.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CheckpointError(
            f"Cannot read {directory}: {error.strerror}. Check its permissions and its disk."
        ) from error
    return sorted((path.name for path in paths if pattern.fullmatch(path.name)), key=step_of)


def step_of(name: str) -> int:
    """The step in a checkpoint's name."""
    return int(name.rpartition("_")[2])


def read_pointer(file: Path) -> str | None:
    """The name of a step in a pointer file; None where there is no file, or it names none."""
    try:
        text = read_text(file, max_bytes=_MAX_POINTER_BYTES).strip()
    except OSError:
        return None
    return text if STEP_NAME.fullmatch(text) else None


def is_own_folder(path: Path) -> bool:
    """Whether this is a folder, and not a link to one: only such folders are replaced and removed."""
    return path.is_dir() and not path.is_symlink()


def refuse_what_is_no_folder(path: Path) -> None:
    """Check that nothing but a folder is where a checkpoint belongs.

    Raises:
        CheckpointError: If there is a link, a file or anything else.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        what = "a symbolic link" if path.is_symlink() else "not a folder"
        raise CheckpointError(
            f"{path} is {what}, where the folder of a checkpoint belongs. Remove it, or put the folder "
            "itself there, and run the same command again."
        )
