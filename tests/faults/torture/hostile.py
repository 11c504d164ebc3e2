"""Training states that somebody altered, all checksums made to fit: resuming is refused in a sentence.

Each variant changes one thing in the training state of a golden run: a plain value, a section, a tensor, or a
file as a whole. Both formats go through the same changes, each in the files and with the names that it has.
"""

import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .processes import ROOT, Driver
from .trial import Arena, Task, Trial, check_loud

PHASE = "resealed hostile training states"
GOLDEN = ROOT / "tests" / "golden"
FORMATS = {1: GOLDEN / "format_1_interrupted", 2: GOLDEN / "format_2_interrupted"}

Variant = tuple[str, Callable[[Path], None]]
"""What it does, and how, to the folder of a checkpoint."""
Content = dict[str, Any]

MANY_DIGITS = 10**4000
PLAIN: dict[str, Any] = {
    "an empty list": [],
    "a list": [1, 2],
    "an object": {"a": 1},
    "a text": "1",
    "an escape sequence": "\x1b[2J" * 9,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "-5": -5,
    "10**15": 10**15,
    "4,000 digits": MANY_DIGITS,
    "nothing": None,
}
# What is no harm where it is.
HARMLESS = {
    ("best_value", "NaN"),
    ("best_value", "infinity"),
    ("best_value", "nothing"),
    # A loss may be of any size.
    ("best_value", "10**15"),
    ("logged_loss", "10**15"),
    ("average_loss", "10**15"),
    ("positions_too_large", "nothing"),
}


def grow(tensor: Tensor) -> Tensor:
    """In one dimension, with an element more."""
    return torch.cat([tensor.reshape(-1), tensor.reshape(-1)[-1:]])


TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "an element more": grow,
    "two for each": lambda tensor: torch.stack([tensor, tensor]),
    "half": lambda tensor: tensor.reshape(-1)[: tensor.numel() // 2].clone(),
    "one element": lambda tensor: torch.zeros(1),
    "a scalar": lambda tensor: torch.zeros(()),
    "no elements": lambda tensor: torch.zeros(0, *tensor.shape),
    "one dimension": lambda tensor: torch.zeros(tensor.numel() + 1),
    "another axis": lambda tensor: tensor[None].clone(),
    "float64": Tensor.double,
    "float16": Tensor.half,
    "integers": Tensor.int,
    "bits": lambda tensor: tensor > 0,
    "NaN": lambda tensor: tensor.clone().fill_(torch.nan),
    "one NaN": lambda tensor: tensor.clone().index_fill_(0, torch.tensor(0), torch.nan),
    "minus infinity": lambda tensor: tensor.clone().fill_(-torch.inf),
}


def reseal(folder: Path, **changes: object) -> None:
    """Make all checksums of a checkpoint fit its files, as somebody would who knows how it is sealed."""
    path = folder / "checkpoint.json"
    content = json.loads(path.read_text())
    parts = {each.name: each for each in folder.iterdir() if each != path}
    checksums = {name: hashlib.sha256(each.read_bytes()).hexdigest() for name, each in parts.items()}
    text = json.dumps({**content, "checksums": checksums, **changes, "seal": "0" * 64})
    path.write_text(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1))


def variants(format_version: int) -> list[Variant]:
    """Every variant of a format, in one order."""
    made = list(_records())
    content, tensors = (_load_2 if format_version == 2 else _load_1)(_checkpoint(FORMATS[format_version]))
    change = _change_2 if format_version == 2 else _change_1
    for path in _paths(content):
        for kind, value in PLAIN.items():
            # A list of groups is what is there, and a section that is not there is nothing.
            if (
                (path[-1], kind) not in HARMLESS
                and _at(content, path) != value
                and path[-1] != "param_groups"
            ):
                made.append((f"{'.'.join(path)} is {kind}", change(_put(path, value))))
        # What a version did not know yet has a default in format 1.
        if format_version == 2 or path[0] != "state" or path[-1] in ("state", "step"):
            made.append((f"{'.'.join(path)} is missing", change(_drop(path))))
    for section in [(), ("state",), ("optimizer",)]:
        made.append((f"{'.'.join(section) or 'the whole'} has more", change(_put((*section, "more"), 1))))
    for name in sorted(tensors):
        for kind, alter in TENSORS.items():
            made.append((f"{name} is {kind}", change(_alter(name, alter))))
        made.append((f"{name} is missing", change(_drop_tensor(name))))
        made.append((f"{name} has another name", change(_rename(name))))
        if "exp_avg_sq" in name:
            made.append((f"{name} is negative", change(_alter(name, lambda tensor: -1 - tensor))))
    made += _files_2() if format_version == 2 else _files_1()
    return made


def sample(format_version: int, count: int, seed: int) -> list[Variant]:
    """``count`` variants, at least one of each kind."""
    chance = random.Random(f"{format_version} {seed}")
    every = variants(format_version)
    chance.shuffle(every)
    # The same thing done elsewhere comes after each thing has been done once.
    first: dict[str, Variant] = {}
    for variant in every:
        first.setdefault(re.sub(r"^\S+ ", "", variant[0]), variant)
    rest = [variant for variant in every if variant not in first.values()]
    return [*first.values(), *rest][:count]


def hostile_states(count: int, chance: random.Random) -> list[Task]:
    """``count`` variants of both formats together, each resumed by the real command."""
    seed = chance.randrange(10**9)
    return [
        resume_hostile(format_version, variant)
        for format_version in FORMATS
        for variant in sample(format_version, count // len(FORMATS), seed)
    ]


def resume_hostile(format_version: int, variant: Variant) -> Task:
    """Give the command that resumes to a copy of the golden run, with that done to its checkpoint."""
    name, spoil = variant

    def task(arena: Arena, driver: Driver) -> Trial:
        trial = Trial(PHASE, f"format {format_version}: {name}")
        golden = Path(shutil.copytree(FORMATS[format_version], arena.new_run().parent / "golden"))
        run = golden / "run"
        spoil(_checkpoint(golden))
        config = golden / "golden.yaml"
        text = (run / "config.yaml").read_text(encoding="utf-8")
        config.write_text(text.replace("path: corpus", f"path: {golden / 'corpus'}"), encoding="utf-8")
        check_loud(trial, run, driver.train(config, run), expected={2}, saying="mt: ")
        return trial

    return task


def _checkpoint(golden: Path) -> Path:
    (folder,) = (golden / "run" / "checkpoints").glob("step_*")
    return folder


def _load_2(folder: Path) -> tuple[Content, dict[str, Tensor]]:
    content = json.loads((folder / "training_state.json").read_text())
    return content, load_file(folder / "training_state.safetensors")


def _load_1(folder: Path) -> tuple[Content, dict[str, Tensor]]:
    """In the shape of format 2, but with its own names, to be put back by `_save_1`."""
    content = torch.load(folder / "training_state.pt", weights_only=True)
    moments, average = content["optimizer"].pop("state"), content["average"].pop("weights")
    tensors = {
        f"moments/{i}/{kind}": tensor for i, of_one in moments.items() for kind, tensor in of_one.items()
    }
    tensors |= {f"weights/{name}": weight for name, weight in average.items()}
    tensors |= {f"random/{name}": state for name, state in content.pop("random").items()}
    # Nobody reads what is in there.
    content["optimizer"]["param_groups"] = []
    return content, {name: tensor for name, tensor in tensors.items() if not name.startswith("random")}


def _change_2(change: Callable[[Content, MutableMapping[str, Tensor]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content, tensors = _load_2(folder)
        change(content, tensors)
        (folder / "training_state.json").write_text(json.dumps(content))
        save_file(tensors, folder / "training_state.safetensors")
        reseal(folder)

    return apply


def _change_1(change: Callable[[Content, MutableMapping[str, Tensor]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        content, tensors = _load_1(folder)
        change(content, tensors)
        moments: dict[Any, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            if kind == "moments":
                number, _, what = rest.partition("/")
                moments.setdefault(int(number), {})[what] = tensor
            else:
                _nest(content, "average", "weights")[rest] = tensor
        _nest(content, "optimizer", "state").update(moments)
        content["random"] = {"cpu": torch.get_rng_state()}
        torch.save(content, folder / "training_state.pt")
        reseal(folder)

    return apply


def _nest(content: Content, outer: str, inner: str) -> dict[Any, Any]:
    """``content[outer][inner]``; a spare one where that was replaced by something else."""
    section = content.get(outer)
    return section.setdefault(inner, {}) if isinstance(section, dict) else {}


def _paths(content: Content) -> Iterator[tuple[str, ...]]:
    for name, value in content.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *rest) for rest in _paths(value))


def _at(content: Content, path: tuple[str, ...]) -> Any:
    for name in path:
        content = content[name]
    return content


def _put(path: tuple[str, ...], value: object) -> Callable[[Content, MutableMapping[str, Tensor]], None]:
    def put(content: Content, tensors: MutableMapping[str, Tensor]) -> None:
        _at(content, path[:-1])[path[-1]] = value

    return put


def _drop(path: tuple[str, ...]) -> Callable[[Content, MutableMapping[str, Tensor]], None]:
    def drop(content: Content, tensors: MutableMapping[str, Tensor]) -> None:
        del _at(content, path[:-1])[path[-1]]

    return drop


def _alter(
    name: str, alter: Callable[[Tensor], Tensor]
) -> Callable[[Content, MutableMapping[str, Tensor]], None]:
    def change(content: Content, tensors: MutableMapping[str, Tensor]) -> None:
        tensors[name] = alter(tensors[name])

    return change


def _drop_tensor(name: str) -> Callable[[Content, MutableMapping[str, Tensor]], None]:
    def drop(content: Content, tensors: MutableMapping[str, Tensor]) -> None:
        del tensors[name]

    return drop


def _rename(name: str) -> Callable[[Content, MutableMapping[str, Tensor]], None]:
    def rename(content: Content, tensors: MutableMapping[str, Tensor]) -> None:
        tensors[f"{name}x"] = tensors.pop(name)

    return rename


def _records() -> Iterator[Variant]:
    """The record itself, resealed."""
    for name in ("step", "metrics", "environment", "format_version", "tokenizers", "average_of"):
        for kind, value in PLAIN.items():
            # An average of nothing was trained; metrics are any numbers.
            if (name, kind) not in {("average_of", "an empty list"), ("format_version", "an object")}:
                yield f"record.{name} is {kind}", partial(reseal, **{name: value})
    for name in ("metrics", "environment"):
        within: dict[str, Any] = {name: {"torch": MANY_DIGITS}}
        yield f"record.{name} has 4,000 digits within", partial(reseal, **within)


def _remove(name: str, folder: Path) -> None:
    (folder / name).unlink()
    reseal(folder)


def _files_2() -> Iterator[Variant]:
    def write(name: str, data: bytes) -> Callable[[Path], None]:
        def apply(folder: Path) -> None:
            (folder / name).write_bytes(data)
            reseal(folder)

        return apply

    values, tensors = "training_state.json", "training_state.safetensors"
    whole = (_checkpoint(FORMATS[2]) / tensors).read_bytes()
    for kind, data in {
        "empty": b"",
        "a list": b"[]",
        "null": b"null",
        "nested": b"[" * 50_000,
        "no text": b"\xff\xfe",
        "digits": b"1" * 90_000,
        "larger than any": b" " * 200_000,
    }.items():
        yield f"{values} is {kind}", write(values, data)
    for kind, data in {
        "empty": b"",
        "cut within the header": whole[:100],
        "cut within the tensors": whole[:-40],
        "longer than it says": whole + b"\0" * 8,
        "a header without end": b"\xff" * 8 + whole[8:],
        "no JSON": whole[:8] + b"[" * (len(whole) - 8),
    }.items():
        yield f"{tensors} is {kind}", write(tensors, data)
    for name in (values, tensors):
        yield f"{name} is gone", partial(_remove, name)
    yield "record.format_version is 1 without its files", lambda folder: reseal(folder, format_version=1)


def _files_1() -> Iterator[Variant]:
    def write(data: bytes) -> Callable[[Path], None]:
        def apply(folder: Path) -> None:
            (folder / "training_state.pt").write_bytes(data)
            reseal(folder)

        return apply

    whole = (_checkpoint(FORMATS[1]) / "training_state.pt").read_bytes()
    for kind, data in {
        "empty": b"",
        "half of it": whole[: len(whole) // 2],
        "no archive": b"x" * 999,
    }.items():
        yield f"training_state.pt is {kind}", write(data)
    yield "record.format_version is 2 without its files", lambda folder: reseal(folder, format_version=2)
