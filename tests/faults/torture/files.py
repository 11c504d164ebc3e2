"""The other files of a run, damaged: said in a sentence, or without consequence, but never a wrong result."""

import random

from .damage import DAMAGES, Damage
from .processes import Driver
from .trial import Arena, Task, Trial, check_loud, finish, judge, read_stderr

PHASE = "damaged files beside the checkpoints"
FILES = (
    "config.yaml",
    "corpus.json",
    "src_tokenizer.json",
    "tgt_tokenizer.json",
    "metrics.jsonl",
    "samples.jsonl",
    "checkpoints/latest",
    "checkpoints/best",
    "lock",
)
CURVES = ("metrics", "curves")


def no_text(data: bytes, chance: random.Random) -> bytes:
    """Bytes that are not UTF-8, somewhere."""
    at = chance.randrange(len(data) + 1)
    return data[:at] + b"\xff\xfe" + data[at:]


def nested(data: bytes, chance: random.Random) -> bytes:
    """Brackets without end, which have made parsers exhaust their stack."""
    return b"[" * 200_000


def another_word(data: bytes, chance: random.Random) -> bytes:
    """One letter of one word, as a flipped bit may leave it: a file as good as before, but not the same."""
    return data.replace(b'"dog"', b'"dof"')


KINDS: dict[str, Damage] = {**DAMAGES, "no text": no_text, "nested deeply": nested}
ALL_KINDS = {**KINDS, "another word": another_word}


def damaged_files(count: int, chance: random.Random) -> list[Task]:
    """``count`` damages of each kind to each file, and a vocabulary with another word in it."""
    each = [
        damaged_file(file, kind, chance.random()) for file in FILES for kind in KINDS for _ in range(count)
    ]
    return [damaged_file("src_tokenizer.json", "another word", 0), *each]


def damaged_file(file: str, kind: str, seed: float) -> Task:
    """A run that was killed, then found with that file damaged, then with the file as it was."""

    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        trial = Trial(PHASE, f"{file}, {kind}")
        driver.train(
            arena.config, run, point="begin step", occurrence=arena.points.count("begin step"), happens="kill"
        )
        path = run / file
        sound = path.read_bytes()
        path.write_bytes(ALL_KINDS[kind](sound or b" ", random.Random(seed)))
        said = len(read_stderr(run))
        code = driver.train(arena.config, run)
        if code == 0:
            judge(trial, arena, run)
            if file in ("metrics.jsonl", "samples.jsonl"):
                # Lines that cannot be read are gone; nothing else may be.
                trial.problems = [each for each in trial.problems if each[1].split()[0] not in CURVES]
            return trial
        check_loud(trial, run, code, expected={2}, saying=f"mt: .*{run}", since=said)
        path.write_bytes(sound)
        finish(trial, arena, driver, run)
        return trial

    return task
