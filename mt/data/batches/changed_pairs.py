"""The training pairs that are changed in each epoch to text as people write it (``as_written``)."""

from collections.abc import Callable, Sequence

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
from mt.data.batches.pairs import Ids
from mt.data.batches.transforms import Transform, Transforms
from mt.data.chunks import pairs_of
from mt.data.corpus import Corpus
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.data.tokenizers.word_level import SPACE_BYTE, SPACE_MARK
from mt.seeding import derived_seed
from mt.sides import Sides

Change = Callable[[int, Sides[str], np.random.Generator], Sides[str]]


def transforms_of(config: Config, corpus: Corpus, tokenizers: Sides[Tokenizer]) -> Transforms | None:
    """The changes of the training pairs of a run that its config asks for; None without any."""
    shares, changes = config.as_written, PairChanges(config, corpus)
    if not shares.is_any:
        return None
    realign = realigning(tokenizers)
    # A pair is changed by the first that draws it.
    in_order = [
        Transform("capitals", shares.upper, changes.upper, realign),
        Transform("title case", shares.title, changes.title, realign),
        Transform("no final punctuation", shares.no_final_punctuation, changes.no_final_punctuation),
        Transform("typing errors", shares.typos, changes.typos),
        Transform("joined lines", shares.joined, changes.joined),
        Transform("noise", shares.noise, changes.noise),
    ]
    for number, transform in enumerate(in_order):
        in_order[number] = transform._replace(change=changes.unless_written(transform.change))
    return Transforms(in_order, corpus.train, tokenizers, config.data.max_length)


def changed_sources(config: Config, texts: Sequence[str], language: str) -> list[str]:
    """Sources as people write them, in the shares of ``as_written``, whose targets a model writes."""
    shares, changed = config.as_written, []
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
    """The changes of a pair, by their names in the config: from its row, its text and what draws it."""

    def __init__(self, config: Config, corpus: Corpus) -> None:
        """Change pairs of this corpus."""
        self._are_written = [bool(config.data.write_tgt)]
        for source_config in config.data.sources.values():
            self._are_written.append(bool(source_config.write_tgt))
        self._pairs, self._sources = corpus.train, corpus.report.sources
        self._ends = np.cumsum([source.pairs for source in self._sources])

    def unless_written(self, change: Change) -> Change:
        """The change, but not of a pair whose target a model has written: its source was changed before."""

        def changed(row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
            return text if self._are_written[self._source_of(row)] else change(row, text, generator)

        return changed

    def upper(self, row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
        """Both sides in capitals, if the source has any."""
        return self._in_other_case(row, text, in_capitals)

    def title(self, row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
        """Both sides in title case, if the source has any."""
        return self._in_other_case(row, text, in_title_case)

    def _in_other_case(self, row: int, text: Sides[str], change: Callable[[str, str], str]) -> Sides[str]:
        languages = self._sources[self._source_of(row)].direction
        src = change(text.src, languages.src)
        return text if src == text.src else Sides(src, change(text.tgt, languages.tgt))

    def no_final_punctuation(self, row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
        """Both sides without the punctuation at their end."""
        return Sides(*map(without_final_punctuation, text))

    def typos(self, row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
        """A source with typing errors."""
        return text._replace(src=with_typos(text.src, generator))

    def joined(self, row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
        """Two to four neighbours of a source as one."""
        end = min(row + int(generator.integers(2, 5)), int(self._ends[self._source_of(row)]))
        src, tgt = zip(*pairs_of(self._pairs.select(range(row, end))), strict=True)
        return Sides(joined(src), joined(tgt))

    def noise(self, row: int, text: Sides[str], generator: np.random.Generator) -> Sides[str]:
        """Noise on both sides."""
        line = noise(generator)
        return Sides(line, line)

    def _source_of(self, row: int) -> int:
        return int(np.searchsorted(self._ends, row, side="right"))


def realigning(tokenizers: Sides[Tokenizer]) -> Callable[[Ids, Sides[Ids], Sides[Ids]], Ids]:
    """What aligns text whose words are the same but for their case: each token has the link of its word."""
    begins = Sides(*map(_begins_word, tokenizers))

    def realign(positions: Ids, before: Sides[Ids], after: Sides[Ids]) -> Ids:
        old = Sides(*(begin[ids].cumsum() for begin, ids in zip(begins, before, strict=True)))
        new = Sides(*(begin[ids].cumsum() for begin, ids in zip(begins, after, strict=True)))
        if old.src[-1] != new.src[-1] or old.tgt[-1] != new.tgt[-1]:
            return np.full(len(after.tgt), NONE, dtype=np.int32)
        # The word of the source that each word of the target is linked with, by its first token with a link.
        linked = np.flatnonzero(positions != NONE)[::-1]
        words = np.full(int(old.tgt[-1]) + 1, NONE)
        words[old.tgt[linked]] = old.src[positions[linked]]
        of_tokens = words[new.tgt]
        first = np.searchsorted(new.src, of_tokens)
        return np.where(of_tokens == NONE, NONE, first).astype(np.int32)

    return realign


def _begins_word(tokenizer: Tokenizer) -> Ids:
    """Whether each entry of a vocabulary begins a word, as 1 or 0; each is a word if none has a mark."""
    entries = tokenizer.tokens(range(tokenizer.size))
    begins = np.array([entry.startswith((SPACE_MARK, SPACE_BYTE)) for entry in entries], dtype=np.int32)
    return begins if begins.any() else np.ones_like(begins)
