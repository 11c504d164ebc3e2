"""`mt average` as a shell would call it: which checkpoints it averages, and what it prints."""

from dataclasses import replace
from pathlib import Path

from mt.checkpoint.record import RECORD, record_text
from mt.checkpoint.store import CheckpointStore
from mt.run_directory import RunDirectory
from tests.fixture_types import Call, Refuse


def test_the_best_the_last_or_by_default_five_are_averaged(
    succeed: Call, refuse: Refuse, trained: RunDirectory
) -> None:
    store = CheckpointStore(trained.checkpoints_dir)
    names = store.names()
    # The oldest is the best, and was validated, as the newest was.
    for name, bleu in ((names[0], 90.0), (names[-1], 80.0)):
        checkpoint = replace(store.require(name), metrics={"bleu": bleu})
        (checkpoint.folder / RECORD).write_text(record_text(checkpoint))
    for options, expected in (
        (("--best", "1"), names[:1]),
        (("--last", "1"), names[-1:]),
        (("--last", "2"), names[-2:]),
        ((), names),
    ):
        _, out, err = succeed("average", "--run", "tiny", *options)
        # Nothing but the folder, for scripts.
        average = store.require(Path(out.removesuffix("\n")).name)
        assert average.average_of == expected
        assert f"--run runs/tiny --checkpoint {average.name} --split validation\n" in err
        assert f"mt compare runs/tiny runs/tiny/checkpoints/{average.name} --split validation\n" in err
        assert ("to average instead of 5" in err) == (not options)
    sentence = refuse("average", "--run", trained.path, "--last", "2", "--best", "2")
    assert "--last and --best are mutually exclusive" in sentence
