"""Files that commands write at the end: checked before the work, so that none of the user's is replaced."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mt.errors import ConfigError, MtError
from mt.inference.arriving_lines import is_stdin

if TYPE_CHECKING:
    from mt.run_directory import RunDirectory


def refuse_missing_folder(file: Path | None) -> None:
    """Check early that the folder of ``file``, which is written at the end, exists."""
    if file is not None and not file.parent.is_dir():
        raise ConfigError(
            f"there is no folder {file.parent} to put {file.name} into: create it, or choose another."
        )
    if file is not None and file.is_dir():
        raise ConfigError(f"{file} is a folder: name a file in it.")


def refuse_overwriting(out: Path | None, *inputs: Path | None, data: str | None = None) -> None:
    """Check early that ``out`` replaces no input, no file of a run, and no file of a run's corpus.

    Args:
        out: The file that will be written.
        inputs: Runs, checkpoints, and files; None where an option is not given.
        data: Another corpus in the languages of the runs, as given to ``--data``.
    """
    # A terminal may be both input and output; only a regular file is replaced.
    if out is None or not out.is_file():
        return
    from mt.run_directory import RunDirectory

    given = [path for path in inputs if path and path.exists()]
    runs = [run for path in given for run in _runs_around(path)]
    files = [*given, *(file for run in runs for file in _corpus_files(run, data))]
    own = (*map(RunDirectory, given), *_runs_around(out))
    if is_stdin(out) or any(map(out.samefile, files)) or any(run.is_own_file(out) for run in own):
        raise ConfigError(
            f"{out} would be replaced by the output, but it is an input or belongs to a run: choose another "
            "file to write."
        )


def _runs_around(path: Path) -> "Iterator[RunDirectory]":
    """The run at ``path``, or those that contain it."""
    from mt.run_directory import RunDirectory

    place = path.resolve()
    return (run for run in map(RunDirectory, (place, *place.parents)) if run.exists)


def _corpus_files(run: "RunDirectory", data: str | None) -> set[Path]:
    """The files on disk of the run's corpus, and of another one."""
    from mt.config.load import load_config
    from mt.data.sources.find import files_on_disk

    try:
        config = load_config(run.config_file).data
        others = [] if data is None else [config.model_copy(update={"path": data, "mix": None})]
        return files_on_disk(config).union(*map(files_on_disk, others))
    except MtError:  # The command itself will say what is wrong with the run.
        return set()
