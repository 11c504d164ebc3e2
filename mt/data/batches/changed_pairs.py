"""The training pairs that are changed in each epoch to text as people write it (``as_written``)."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np

from mt.config.config import Config
from mt.data.as_written import (
    in_capitals,
    in_title_case,
    joined,
    noise,
    with_typos,
    without_final_punctuation,
)
from mt.data.batches.alignment import NONE
from mt.data.batches.kept_words import Pieces
from mt.data.batches.pairs import Ids
from mt.data.batches.transforms import Transform, Transforms
from mt.data.corpus import Corpus
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.seeding import derived_seed
from mt.sides import Sides

Kind = Literal["upper", "title", "no_final_punctuation", "typos", "joined", "noise"]


def transforms_of(config: Config, corpus: Corpus, tokenizers: Sides[Tokenizer]) -> Transforms | None:
    """The changes of the training pairs of a run that its config asks for; None without any."""
    shares = config.as_written
    if not shares.is_any:
        return None
    changes = PairChanges(config, corpus)
    pieces = Sides(*map(Pieces.of, tokenizers))
    # A pair is changed by the first that draws it.
    kinds: dict[Kind, float] = {
        "upper": shares.upper,
        "title": shares.title,
        "no_final_punctuation": shares.no_final_punctuation,
        "typos": shares.typos,
        "joined": shares.joined,
        "noise": shares.noise,
    }
    in_order = []
    for kind, share in kinds.items():
        has_same_words = kind in ("upper", "title")
        realign = partial(realigned, pieces) if has_same_words else None
        in_order.append(Transform(f"as written: {kind}", share, partial(changes.change, kind), realign))
    return Transforms(in_order, corpus.train, tokenizers, config.data.max_length)


def changed_sources(config: Config, texts: Sequence[str], language: str) -> list[str]:
    """Sources as people write them, in the shares of ``as_written``, whose targets a model writes."""
    shares = config.as_written
    changed = []
    for row, text in enumerate(texts):
        generator = np.random.default_rng(derived_seed("changed before writing", config.training.seed, row))
        draws = generator.random(4)
        if draws[0] < shares.upper:
            text = in_capitals(text, language)
        elif draws[1] < shares.title:
            text = in_title_case(text, language)
        elif draws[2] < shares.no_final_punctuation:
            text = without_final_punctuation(text) or text
        elif draws[3] < shares.typos:
            text = with_typos(text, generator)
        changed.append(text)
    return changed


class PairChanges:
    """The changes of the training pairs of a run."""

    def __init__(self, config: Config, corpus: Corpus) -> None:
        """Change pairs of this corpus."""
        self._pairs = corpus.train
        self._sources = corpus.report.sources
        self._ends = np.cumsum([source.pairs for source in self._sources])
        self._are_written = [bool(config.data.write_tgt)]
        for source in config.data.sources.values():
            self._are_written.append(bool(source.write_tgt))

    def change(self, kind: Kind, row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
        """The pair of a row, changed; but not one whose target a model wrote, for a source changed before."""
        source = int(np.searchsorted(self._ends, row, side="right"))
        if self._are_written[source]:
            return text
        match kind:
            case "upper" | "title":
                in_case = in_capitals if kind == "upper" else in_title_case
                changed = Sides(*map(in_case, text, self._sources[source].direction))
                # Case changes only where the script of the source has any.
                return text if changed.src == text.src else changed
            case "no_final_punctuation":
                return Sides(*map(without_final_punctuation, text))
            case "typos":
                return text._replace(src=with_typos(text.src, generator))
            case "joined":
                end = min(row + int(generator.integers(2, 5)), int(self._ends[source]))
                lines = self._pairs[row:end]
                return Sides(joined(lines["src"]), joined(lines["tgt"]))
            case "noise":
                line = noise(generator)
                return Sides(line, line)


def realigned(pieces: Sides[Pieces], positions: Ids, before: Sides[Ids], after: Sides[Ids]) -> Ids:
    """The alignment of text of which only the case has changed: each token has the link of its word."""
    old, _ = pieces.src.words(before.src)
    new, _ = pieces.src.words(after.src)
    old_tgt, _ = pieces.tgt.words(before.tgt)
    new_tgt, _ = pieces.tgt.words(after.tgt)
    if old[-1] != new[-1] or old_tgt[-1] != new_tgt[-1]:
        return np.full(len(after.tgt), NONE, dtype=np.int32)
    # The word of the source that each word of the target is linked with, by its first token with a link.
    linked = np.flatnonzero(positions != NONE)[::-1]
    words = np.full(int(old_tgt[-1]) + 1, NONE)
    words[old_tgt[linked]] = old[positions[linked]]
    of_tokens = words[new_tgt]
    first = np.searchsorted(new, of_tokens)
    return np.where(of_tokens == NONE, NONE, first).astype(np.int32)
