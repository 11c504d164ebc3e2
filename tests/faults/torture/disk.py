"""A disk that is full, from any point of a run on, or after any number of bytes."""

import random

from .driver import NEED_ROOM
from .processes import Driver
from .trial import Arena, Task, Trial, check_loud, check_readable, finish

CALLS, BYTES = "disk full at every call", "disk full within a file"


def full_at_every_call(arena: Arena, chance: random.Random, most: int | None = None) -> list[Task]:
    """One full disk at each point at which a run needs room, at one of the times that it passes it."""
    points = sorted(
        {point for point in arena.points if point.split()[0] == "before" and point.split()[1] in NEED_ROOM}
    )
    if most is not None:
        points = chance.sample(points, most)
    return [
        full_disk(CALLS, f"{point}, time {occurrence}", point=point, occurrence=occurrence, happens="full")
        for point in points
        for occurrence in [chance.randint(1, arena.points.count(point))]
    ]


def full_after_bytes(arena: Arena, count: int, chance: random.Random) -> list[Task]:
    """Disks with room for so many bytes, spread over all that a run writes."""
    newest = arena.unbroken / "checkpoints" / (arena.unbroken / "checkpoints/latest").read_text().strip()
    size = sum(path.stat().st_size for path in newest.iterdir())
    written = size * arena.points.count("before mkdir checkpoints/.step.partial")
    rooms = [int(written * (number + chance.random()) / count) for number in range(count)]
    return [full_disk(BYTES, f"after {room:,} bytes", room=room) for room in rooms]


def full_disk(phase: str, name: str, **fate: str | int) -> Task:
    def task(arena: Arena, driver: Driver) -> Trial:
        run = arena.new_run()
        trial = Trial(phase, name)
        code = driver.train(arena.config, run, **fate)
        # An old checkpoint that cannot be removed is only a warning.
        is_removal = str(fate.get("point", "")).startswith("before rename checkpoints/step ->")
        check_loud(trial, run, code, expected={0, 2} if is_removal else {2}, saying="No space left on device")
        check_readable(trial, run)
        finish(trial, arena, driver, run)
        return trial

    return task
