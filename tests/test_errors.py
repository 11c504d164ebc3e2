"""Errors name ways out: in general words to Python, in flags on the command line."""

from mt.cli.remedies import IN_FLAGS, sentence
from mt.errors import Remedy, RunError


def test_every_remedy_has_its_flag_on_the_command_line_only() -> None:
    assert set(IN_FLAGS) == set(Remedy)
    for remedy in Remedy:
        error = RunError("runs/x cannot be used.", remedy)
        assert "--" not in str(error)
        assert "--" in sentence(error)


def test_remedies_follow_the_message_as_a_sentence() -> None:
    error = RunError("runs/x is in use.", Remedy.OTHER_RUN, Remedy.START_OVER)
    assert str(error).startswith("runs/x is in use. Use another run directory, or start")
    assert sentence(error).startswith("runs/x is in use. Use another run directory with --run PATH, or start")
    assert (
        sentence(RunError("runs/x is in use.")) == str(RunError("runs/x is in use.")) == "runs/x is in use."
    )
