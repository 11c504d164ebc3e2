"""Reads the training state of format 1, ``training_state.pt``: a pickle in a zip, written by ``torch.save``.

It is not unpickled, not even by ``torch.load(weights_only=True)``, which allocates whatever sizes the pickle
claims. The few instructions that such a file needs are interpreted here; any other instruction is an error.
"""

import io
import math
import pickletools
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from mt.checkpoint.record import FORMAT_1_STATE, DamagedError
from mt.checkpoint.training_state import EXP_AVG, EXP_AVG_SQ, WEIGHTS, SavedTraining

_MAX_PICKLE_BYTES = 4_000_000
_DTYPES = {"torch FloatStorage": torch.float32, "torch ByteStorage": torch.uint8}
_REBUILD_TENSOR, _ORDERED_DICT = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
_MARK = object()


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)


class _Moments(_Section):
    step: Tensor
    exp_avg: Tensor
    exp_avg_sq: Tensor


class _Optimizer(_Section):
    state: dict[int, _Moments]
    param_groups: list[Any]


class _Average(_Section):
    num_updates: int
    weights: dict[str, Tensor]


class _Content(_Section):
    optimizer: _Optimizer
    scaler: dict[str, Any]
    state: dict[str, Any]
    random: dict[str, Tensor]
    average: _Average | None = None


def read_format_1(archive: bytes) -> SavedTraining:
    """The saved state, without the state of the random generators, which is no longer used.

    Raises:
        DamagedError: If the file contains anything else.
    """
    try:
        content = _Content.model_validate(_read_archive(archive))
        moments = content.optimizer.state
        steps = {float(each.step) for each in moments.values()} or {0.0}
        (num_updates,) = steps
        if not num_updates.is_integer() or any(each.step.shape for each in moments.values()):
            raise ValueError("not a number of steps")
        scaler, average = content.scaler, content.average
        values = {
            "state": content.state,
            "optimizer": {"num_updates": int(num_updates)},
            "scaler": {"scale": scaler["scale"], "growth_tracker": scaler["_growth_tracker"]}
            if scaler
            else None,
            "average": {"num_updates": average.num_updates} if average else None,
        }
    except DamagedError:
        raise
    except Exception as error:  # A malicious file can fail in any way.
        raise DamagedError(f"{FORMAT_1_STATE} is not a training state written by mt") from error
    tensors = {f"{EXP_AVG}{number}": each.exp_avg for number, each in moments.items()}
    tensors |= {f"{EXP_AVG_SQ}{number}": each.exp_avg_sq for number, each in moments.items()}
    tensors |= {f"{WEIGHTS}{name}": weight for name, weight in (average.weights if average else {}).items()}
    if len({id(tensor) for tensor in tensors.values()}) != len(tensors):
        raise DamagedError(f"{FORMAT_1_STATE} uses one tensor for several names")
    return SavedTraining(values, tensors, is_format_1=True)


def _read_archive(content: bytes) -> object:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        _refuse_compressed(entries, len(content))
        # ``NAME/data.pkl`` is the pickle, ``NAME/data/KEY`` the bytes of a tensor.
        records = {entry.filename.partition("/")[2]: entry for entry in entries}
        if len(records) != len(entries) or records["data.pkl"].file_size > _MAX_PICKLE_BYTES:
            raise DamagedError(f"{FORMAT_1_STATE} is not a training state written by mt")
        # Each can be taken only once, so that no more than the file is in memory.
        take: Callable[[str], bytes] = lambda key: archive.read(records.pop(f"data/{key}"))  # noqa: E731
        return _follow(archive.read(records["data.pkl"]), take)


def _refuse_compressed(entries: Iterable[zipfile.ZipInfo], num_bytes: int) -> None:
    """Refuse compressed archives: torch does not compress, so one that grows when read is a zip bomb."""
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or (
        sum(entry.file_size for entry in entries) > num_bytes
    ):
        raise DamagedError(f"{FORMAT_1_STATE} is compressed, which mt never does")


@dataclass(frozen=True)
class _Global:
    """The name of a function or class in the pickle; it is never looked up."""

    name: str


@dataclass(frozen=True)
class _Storage:
    """A block of memory that tensors are made of."""

    kind: _Global
    key: str
    num_elements: int


def _follow(pickle: bytes, take: Callable[[str], bytes]) -> object:
    """The object that a pickle's instructions build, of dicts, lists, tuples, plain values and tensors."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        items = []
        while (item := stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    instructions: Iterable[tuple[pickletools.OpcodeInfo, Any, int | None]] = pickletools.genops(pickle)
    for instruction, argument, _ in instructions:
        match instruction.name:
            case "PROTO":
                pass
            case "STOP":
                break
            case "MARK":
                stack.append(_MARK)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[instruction.name])
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                stack.append(argument)
            case "EMPTY_DICT" | "EMPTY_LIST" | "EMPTY_TUPLE":
                stack.append(
                    {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[instruction.name]()
                )
            case "TUPLE":
                stack.append(tuple(since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                size = int(instruction.name[-1])
                stack[-size:] = [tuple(stack[-size:])]
            case "APPEND":
                item = stack.pop()
                _a_list(stack[-1]).append(item)
            case "APPENDS":
                items = since_mark()
                _a_list(stack[-1]).extend(items)
            case "SETITEM":
                key, item = stack[-2:]
                del stack[-2:]
                _set_items(stack[-1], [key, item])
            case "SETITEMS":
                items = since_mark()
                _set_items(stack[-1], items)
            case "BINPUT" | "LONG_BINPUT":
                memo[int(argument)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[int(argument)])
            case "GLOBAL":
                stack.append(_Global(argument))
            case "BINPERSID":
                stack.append(_storage(*stack.pop()))
            case "REDUCE":
                arguments = stack.pop()
                stack.append(_call(stack.pop(), arguments, take))
            case name:
                raise ValueError(f"mt never writes {name}")
    (content,) = stack
    return content


def _a_list(value: object) -> list[Any]:
    if type(value) is not list:
        raise TypeError("not a list")
    return value


def _set_items(target: object, items: list[Any]) -> None:
    if type(target) is not dict:
        raise TypeError("not a dict")
    for key, item in zip(items[::2], items[1::2], strict=True):
        # Hashing nested tuples can take forever.
        if type(key) not in (str, int):
            raise TypeError("a key is neither a string nor an integer")
        target[key] = item


def _storage(kind: str, of: _Global, key: str, location: str, num_elements: int) -> _Storage:
    if kind != "storage" or type(of) is not _Global or type(key) is not str or type(num_elements) is not int:
        raise TypeError("not a storage")
    return _Storage(of, key, num_elements)


def _call(function: object, arguments: tuple[Any, ...], take: Callable[[str], bytes]) -> object:
    if function == _Global(_ORDERED_DICT) and not arguments:
        return {}
    if function == _Global(_REBUILD_TENSOR):
        return _tensor(*arguments, take=take)
    raise ValueError("mt never writes any other call")


def _tensor(
    storage: _Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
    hooks: Mapping[str, object],
    *,
    take: Callable[[str], bytes],
) -> Tensor:
    """A contiguous tensor of all elements of its storage, and no others."""
    dtype = _DTYPES[storage.kind.name]
    data = take(storage.key)
    num_elements = math.prod(shape)
    if offset or min(shape, default=0) < 0 or num_elements * dtype.itemsize != len(data):
        raise ValueError("a tensor that does not match its storage")
    if not num_elements:
        return torch.empty(shape, dtype=dtype)
    tensor = torch.frombuffer(bytearray(data), dtype=dtype).view(shape)
    places = [
        (own, theirs) for own, theirs, size in zip(tensor.stride(), strides, shape, strict=True) if size > 1
    ]
    if storage.num_elements != num_elements or any(own != theirs for own, theirs in places):
        raise ValueError("a tensor that does not match its storage")
    return tensor
