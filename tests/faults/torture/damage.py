"""Truncated parts and flipped bits: never loaded, and training continues from the newest sound checkpoint."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from mt.checkpoint.store import CheckpointStore
from mt.errors import CheckpointError

from .processes import Driver
from .trial import Arena, Task, Trial, finish, newest_step, read_stderr

PHASE, RESUMED = "damaged checkpoints", "runs with a damaged newest checkpoint"
PARTS = ("model.safetensors", "training_state.safetensors", "training_state.json", "checkpoint.json")
Damage = Callable[[bytes, random.Random], bytes]


def cut(data: bytes, chance: random.Random) -> bytes:
    """Shorter, anywhere."""
    return data[: chance.randrange(len(data))]


def flip(data: bytes, chance: random.Random) -> bytes:
    """One bit the other way."""
    damaged = bytearray(data)
    damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


DAMAGES: dict[str, Damage] = {"truncated": cut, "one bit flipped": flip}


def damages(count: int, chance: random.Random, most_resumed: int | None = None) -> list[Task]:
    """``count`` truncations and as many flipped bits of each part; and each kind once through training."""
    seed = chance.random()
    each = [(part, kind) for part in PARTS for kind in DAMAGES]
    return [
        *[offer_damaged(part, kind, count, seed) for part, kind in each],
        *[resume_damaged(part, kind, seed) for part, kind in each[:most_resumed]],
    ]


def offer_damaged(part: str, kind: str, count: int, seed: float) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        run = Path(shutil.copytree(arena.unbroken, arena.new_run()))
        trial = Trial(PHASE, f"{part}, {kind}", num_damaged=count)
        chance = random.Random(f"{part} {kind} {seed}")
        store = CheckpointStore(run / "checkpoints")
        newest = store.names()[-1]
        path = store.directory / newest / part
        sound = path.read_bytes()
        for _ in range(count):
            path.write_bytes(DAMAGES[kind](sound, chance))
            if is_loaded(store, newest):
                trial.blame("loaded", f"{newest} was taken for sound")
        path.write_bytes(sound)
        if not is_loaded(store, newest):
            trial.blame("lost", f"{newest} was taken for damaged when it was whole again")
        return trial

    return task


def is_loaded(store: CheckpointStore, name: str) -> bool:
    """Whether anyone takes this checkpoint: who resumes, or who asks for it."""
    recovered, _ = store.recover()
    if recovered is not None and recovered.checkpoint.name == name:
        return True
    try:
        checkpoint = store.require(name)
        store.load_model(checkpoint)
        store.load_training_state(checkpoint)
    except CheckpointError:
        return False
    return True


def resume_damaged(part: str, kind: str, seed: float) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        trial = Trial(RESUMED, f"{part}, {kind}", num_damaged=1)
        driver.train(
            arena.config,
            run,
            point="begin step",
            occurrence=arena.points.count("begin step") - 4,
            happens="kill",
        )
        newest = newest_step(run)
        path = run / f"checkpoints/step_{newest:07d}" / part
        path.write_bytes(DAMAGES[kind](path.read_bytes(), random.Random(f"{part} {kind} {seed}")))
        aside = path.parent.rename(run / "aside")
        older = newest_step(run)
        aside.rename(path.parent)
        finish(trial, arena, driver, run)
        # That it did not go on from the damaged one is what is right here.
        trial.problems = [
            problem for problem in trial.problems if f"though step {newest} was" not in problem[1]
        ]
        said = read_stderr(run)
        if f"{path.parent} is damaged" not in said:
            trial.blame("silent", f"did not name the damaged {path.parent.name}")
        if f"from step {older}" not in said:
            trial.blame("lost", f"did not go on from step {older}, the newest sound one")
        return trial

    return task
