"""Transforms of text: in each epoch, some training pairs have another text, as people write it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Literal, NamedTuple

import numpy as np
from datasets import Dataset

from mt.config.config import Config
from mt.data.as_written import (
    in_capitals,
    in_title_case,
    joined,
    noise,
    with_typos,
    without_final_punctuation,
)
from mt.data.batches.alignment import NONE, Integers
from mt.data.batches.dataset import encode_texts
from mt.data.batches.kept_words import Pieces
from mt.data.batches.pairs import EncodedPairs, EncodedSentences, Ids
from mt.data.chunks import CHUNK_SIZE, pairs_of
from mt.data.corpus import Corpus
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.seeding import derived_seed
from mt.sides import Sides

Kind = Literal["upper", "title", "no_final_punctuation", "typos", "joined", "noise"]


class Transform(NamedTuple):
    """A change of the text of a ``share`` of the rows of the corpus."""

    purpose: str
    """Names its draws, which follow from (purpose, seed, epoch, row)."""
    share: float
    change: Callable[[int, Sides[str], np.random.Generator], Sides[str]]
    """The new text of a row, from its number in the corpus and its text."""
    realign: Callable[[Ids, Sides[Ids], Sides[Ids]], Ids] | None = None
    """The source position of each new target token, from the old ones and the ids before and after.

    None: no token has one.
    """

    def generator(self, *numbers: int) -> np.random.Generator:
        """What draws the rows of (seed, epoch), and how that of (seed, epoch, row) is changed."""
        return np.random.default_rng(derived_seed(self.purpose, *numbers))


@dataclass(frozen=True)
class Transforms:
    """The transforms of a run; each row is changed by the first of them that draws it, if one does."""

    in_order: Sequence[Transform]
    corpus: Dataset
    tokenizers: Sides[Tokenizer]
    max_length: int

    def __call__(self, pairs: EncodedPairs, seed: int, epoch: int) -> EncodedPairs:
        """The pairs of an epoch; in memory, unless nothing is changed."""
        assert pairs.rows is not None
        which = np.full(len(pairs), NONE)
        for number in reversed(range(len(self.in_order))):
            transform = self.in_order[number]
            draws = transform.generator(seed, epoch).random(len(self.corpus))
            which[draws[pairs.rows] < transform.share] = number
        indices = np.flatnonzero(which != NONE)
        if not len(indices):
            return pairs
        fitting: list[int] = []
        new_src: list[Ids] = []
        new_tgt: list[Ids] = []
        for start in range(0, len(indices), CHUNK_SIZE):
            part = indices[start : start + CHUNK_SIZE]
            begins = [self._begin(pairs.src[index]) for index in part]
            texts = self._changed(pairs.rows[part].tolist(), which[part], seed, epoch)
            src, tgt = encode_texts(texts, self.tokenizers, begins)
            # What is empty, or too long, stays as it was.
            shortest = np.minimum(src.lengths - [*map(len, begins)], tgt.lengths)
            longest = np.maximum(src.lengths, tgt.lengths)
            for fits in np.flatnonzero((shortest > 1) & (longest <= self.max_length)).tolist():
                fitting.append(part[fits])
                new_src.append(src[fits])
                new_tgt.append(tgt[fits])
        changed = replace(
            pairs, src=pairs.src.replaced(fitting, new_src), tgt=pairs.tgt.replaced(fitting, new_tgt)
        )
        if pairs.src_positions is None:
            return changed
        old = EncodedSentences(pairs.src_positions.astype(np.int32), pairs.tgt.lengths)
        rows = []
        for index in fitting:
            rows.append(self._realigned(pairs, changed, old[index], which[index], index))
        return replace(changed, src_positions=old.replaced(fitting, rows).ids.astype(np.int16))

    def _changed(self, rows: list[int], which: Integers, seed: int, epoch: int) -> Sides[list[str]]:
        """The new texts of some rows of the corpus."""
        texts = Sides(list[str](), list[str]())
        for row, number, text in zip(rows, which, pairs_of(self.corpus.select(rows)), strict=True):
            transform = self.in_order[number]
            src, tgt = transform.change(row, Sides(*text), transform.generator(seed, epoch, row))
            texts.src.append(src)
            texts.tgt.append(tgt)
        return texts

    def _begin(self, src: Ids) -> list[int]:
        """The ids before the text of a source, such as that of its direction."""
        not_text = {*self.tokenizers.src.reserved.values()}
        return [*takewhile(not_text.__contains__, src.tolist())]

    def _realigned(
        self, before: EncodedPairs, after: EncodedPairs, positions: Ids, which: int, index: int
    ) -> Ids:
        """The source positions of a changed row."""
        realign = self.in_order[which].realign
        old, new = (Sides(pairs.src[index], pairs.tgt[index]) for pairs in (before, after))
        if all(map(np.array_equal, old, new)):
            return positions
        if realign is None:
            return np.full(len(new.tgt), NONE, dtype=np.int32)
        return realign(positions, old, new)


def transforms_of(config: Config, corpus: Corpus, tokenizers: Sides[Tokenizer]) -> Transforms | None:
    """The changes of the training pairs of a run that its config asks for; None without any."""
    shares = config.as_written
    if not shares.is_any:
        return None
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
        change = partial(changed_pair, config, corpus, kind)
        in_order.append(Transform(f"as written: {kind}", share, change, realign))
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


def changed_pair(
    config: Config, corpus: Corpus, kind: Kind, row: int, text: Sides[str], generator: np.random.Generator
) -> Sides[str]:
    """The pair of a row, changed; but not one whose target a model wrote, for a source changed before."""
    sources = corpus.report.sources
    ends = np.cumsum([source.pairs for source in sources])
    number = int(np.searchsorted(ends, row, side="right"))
    if [config.data, *config.data.sources.values()][number].write_tgt:
        return text
    match kind:
        case "upper" | "title":
            in_case = in_capitals if kind == "upper" else in_title_case
            changed = Sides(*map(in_case, text, sources[number].direction))
            # Case changes only where the script of the source has any.
            return text if changed.src == text.src else changed
        case "no_final_punctuation":
            return Sides(*map(without_final_punctuation, text))
        case "typos":
            return text._replace(src=with_typos(text.src, generator))
        case "joined":
            end = min(row + int(generator.integers(2, 5)), int(ends[number]))
            lines = corpus.train[row:end]
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
