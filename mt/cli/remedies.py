"""The remedies for errors, as command-line flags."""

from collections.abc import Sequence

from mt.errors import MtError, Remedy, with_remedies

IN_FLAGS = {
    Remedy.OTHER_RUN: "use another run directory with --run PATH",
    Remedy.START_OVER: "start over with --restart, which moves the old run aside",
    Remedy.OTHER_CHECKPOINT: "use another checkpoint with --checkpoint NAME",
    Remedy.COMPUTE_ON_CPU: "compute on the CPU with --device cpu",
    Remedy.OTHER_PRECISION: "use another precision, such as --precision auto",
    Remedy.COMPUTE_IN_FLOAT32: "compute in float32 with --precision float32",
    Remedy.GIVE_REFERENCES: "give the references with --references FILE",
    Remedy.OTHER_SPLIT: "name the split that they belong to with --split NAME",
    Remedy.WRITE_RECIPE: "write that recipe to a file with mt init --recipe NAME > NAME.yaml",
    Remedy.TRAIN_ONE: (
        "train one with mt init --recipe quickstart > quickstart.yaml; mt train --config quickstart.yaml "
        "(takes a few minutes)"
    ),
    Remedy.RESUME: "resume that run with the same command without --from-checkpoint",
    Remedy.OTHER_TEST_SET: "name the test set that they belong to with --data PATH",
    Remedy.SKIP_LINE: "to leave it out, start after it with --start-line N",
    Remedy.OTHER_ADDRESS: "choose another port with --port N (0 for a free one), or another --host",
}


def sentence(error: MtError) -> str:
    """The message of an error, with its remedies as flags."""
    return in_flags(error.message, error.remedies)


def in_flags(message: str, remedies: Sequence[Remedy]) -> str:
    """A message, followed by its remedies as flags."""
    return with_remedies(message, [IN_FLAGS[remedy] for remedy in remedies])
