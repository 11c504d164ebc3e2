"""Whether the tokenizers of a run are those that its weights were trained with."""

import hashlib

from mt.checkpoint.record import Checkpoint
from mt.errors import RunError
from mt.regular_files import open_regular
from mt.run_directory import RunDirectory


def tokenizer_checksums(run: RunDirectory) -> dict[str, str]:
    """SHA-256 of the tokenizer files under ``src`` and ``tgt``, to be kept in each checkpoint.

    Raises:
        RunError: If one is missing or cannot be read.
    """
    checksums = {}
    for side, path in (("src", run.src_tokenizer_file), ("tgt", run.tgt_tokenizer_file)):
        try:
            with open_regular(path) as file:
                checksums[side] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise RunError(
                f"cannot read the tokenizer {path}: {error.strerror}. Restore it from a copy of the run, or "
                "train anew with --restart."
            ) from error
    return checksums


def refuse_other_tokenizers(run: RunDirectory, checkpoint: Checkpoint) -> None:
    """Compare the tokenizers in the run with what the checkpoint says of them.

    With another tokenizer of equal size all would run, and every word mean another.

    Raises:
        RunError: If one was changed since, is missing, or cannot be read.
    """
    found = tokenizer_checksums(run)
    # Checkpoints of the first versions do not say.
    changed = [side for side, checksum in checkpoint.tokenizers.items() if found.get(side) != checksum]
    if changed:
        raise RunError(
            f"the {' and '.join(changed)} tokenizer in {run.path} is not the one that {checkpoint.name} was "
            "trained with (its checksum differs). Restore it from a copy of the run, or train anew with "
            "--restart."
        )
