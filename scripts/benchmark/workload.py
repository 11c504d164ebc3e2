"""What is trained on and translated, as files that every side can read, in whatever environment it lives."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Description:
    """What the tables say of the workload."""

    corpus: str
    src_vocabulary_size: int
    tgt_vocabulary_size: int
    batch_tokens: int
    seed: int
    max_length: int
    num_pairs: int


@dataclass(frozen=True)
class Ragged:
    """Arrays of different lengths, laid end to end."""

    values: Integers
    offsets: Integers

    @classmethod
    def of(cls, arrays: Sequence[npt.NDArray[np.integer]]) -> Self:
        offsets = np.cumsum([0, *map(len, arrays)])
        return cls(np.concatenate(arrays), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Integers:
        return self.values[self.offsets[index] : self.offsets[index + 1]]


@dataclass(frozen=True)
class Workload:
    """Sentence pairs as ids, with neither BOS nor EOS, and the batches that are made of them."""

    description: Description
    src: Ragged
    tgt: Ragged
    batches: Ragged
    """Indices into the pairs."""

    def save(self, folder: Path) -> None:
        (folder / "workload.json").write_text(json.dumps(asdict(self.description), indent=2))
        arrays: dict[str, Integers] = {}
        for name in ("src", "tgt", "batches"):
            ragged: Ragged = getattr(self, name)
            arrays |= {f"{name}_values": ragged.values, f"{name}_offsets": ragged.offsets}
        np.savez(folder / "workload.npz", allow_pickle=False, **arrays)

    @classmethod
    def load(cls, folder: Path) -> Self:
        description = Description(**json.loads((folder / "workload.json").read_text()))
        with np.load(folder / "workload.npz") as file:
            ragged = [Ragged(file[f"{n}_values"], file[f"{n}_offsets"]) for n in ("src", "tgt", "batches")]
        return cls(description, *ragged)

    def pairs_of_batch(self, number: int) -> list[tuple[Integers, Integers]]:
        """The pairs of one batch; after the last batch comes the first."""
        return [(self.src[i], self.tgt[i]) for i in self.batches[number % len(self.batches)]]

    def pairs_of_sentences(self, num_sentences: int) -> Iterator[list[tuple[Integers, Integers]]]:
        """So many pairs at a time in random order, for ever, as a loop without buckets takes them."""
        generator = np.random.default_rng(self.description.seed)
        while True:
            order = generator.permutation(len(self.src))
            for start in range(0, len(order) - num_sentences + 1, num_sentences):
                yield [(self.src[i], self.tgt[i]) for i in order[start : start + num_sentences]]
