"""The ways out of an error, in the flags of the command line."""

from mt.errors import MtError, Remedy, with_remedies

IN_FLAGS = {
    Remedy.OTHER_RUN: "use another run directory with --run PATH",
    Remedy.START_OVER: "start over with --restart, which moves the old run aside",
    Remedy.OTHER_CHECKPOINT: "take another checkpoint with --checkpoint NAME",
    Remedy.COMPUTE_ON_CPU: "compute on the CPU with --device cpu",
    Remedy.GIVE_REFERENCES: "give the references with --references FILE",
    Remedy.OTHER_SPLIT: "name the split that they are of with --split NAME",
    Remedy.CHOOSE_SEARCH: "choose it with mt translate --beam 5, --length-penalty, --max-length or --sample",
    Remedy.WRITE_RECIPE: "write that recipe to a file with mt init --recipe NAME > NAME.yaml",
    Remedy.TRAIN_ONE: (
        "train one with mt init --recipe quickstart > quickstart.yaml; mt train --config quickstart.yaml "
        "(takes a few minutes)"
    ),
}


def sentence(error: MtError) -> str:
    """What to print for an error: its message, and what to do in terms of flags."""
    return with_remedies(error.message, [IN_FLAGS[remedy] for remedy in error.remedies])
