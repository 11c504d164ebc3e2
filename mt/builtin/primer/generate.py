"""Pairs of the primer: which split a combination belongs to, and no pair twice.

The test split holds out *combinations* of subject, verb and object: training has boys who read, and people
who read poems, but a boy who reads a poem may be in the test split only. So a good score shows grammar, not
memory. The words themselves are the same everywhere, as are clauses of a pronoun and a verb alone ("I
laugh"): of these each whole sentence belongs to one split.
"""

from collections.abc import Iterator
from functools import cache, partial
from hashlib import blake2b
from itertools import islice
from random import Random

from mt.builtin.primer.drawing import Drawing, triple
from mt.builtin.primer.patterns import PATTERNS
from mt.builtin.primer.sentence import Sentence
from mt.errors import DataError
from mt.seen_pairs import SeenPairs

PRIMER_VERSION = 1
"""Raised when the same arguments would give other pairs than before, such as with another lexicon."""

# Of 256 parts of all combinations; what is left is the training split's.
_TEST, _VALIDATION = 26, 26
# Words of an English sentence.
_SHORTEST, _LONGEST = 4, 16
# So many repetitions in a row mean that there is nothing new to be had in reasonable time.
_PATIENCE = 5000
_CHUNK_SIZE = 10_000


def primer_pairs(split: str, num_pairs: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield ``num_pairs`` distinct (English, German) pairs, the same for the same arguments.

    Fewer are the beginning of more.

    Args:
        split: "train", "validation" or "test"; no combination of subject, verb and object is in two of them.
        num_pairs: How many; there are millions.
        seed: Of the drawing, not of the splits, which are the same for every seed.

    Raises:
        DataError: If the split is not one of the three, or has no such number of pairs.
    """
    for sentence in primer_sentences(split, num_pairs, seed):
        yield sentence.english, sentence.german


def primer_sentences(split: str, num_sentences: int, seed: int) -> Iterator[Sentence]:
    """Yield the sentences behind ``primer_pairs``, which still know what clauses they say."""
    if split not in ("train", "validation", "test"):
        raise DataError(f"builtin:primer has no split {split!r}; it has train, validation and test.")
    random = Random(f"primer {split} {seed}")
    drawn = _drawn(Drawing(random, partial(_is_in, split)), split)
    seen = SeenPairs()
    num_left = num_sentences
    repetitions = 0
    while num_left:
        # Many at a time, because hashes are looked up in arrays: ten million take 80 MB.
        sentences = list(islice(drawn, min(num_left, _CHUNK_SIZE)))
        for sentence, is_new in zip(sentences, seen.add((s.english, "") for s in sentences), strict=True):
            if is_new:
                num_left -= 1
                repetitions = 0
                yield sentence
                continue
            repetitions += 1
            if repetitions == _PATIENCE:
                raise DataError(
                    f"builtin:primer has no {num_sentences:,} distinct pairs in its {split} split; "
                    f"ask for {num_sentences - num_left:,} or fewer."
                )


def _drawn(drawing: Drawing, split: str) -> Iterator[Sentence]:
    """Sentences of the split without end, some of them more than once."""
    patterns = [pattern for pattern, weight in PATTERNS for _ in range(weight)]
    while True:
        sentence = drawing.choose(patterns)(drawing)
        if not _SHORTEST <= sentence.english.count(" ") + 1 <= _LONGEST:
            continue
        if not any(map(triple, sentence.clauses)) and split_of(sentence.english) != split:
            # It has no combination that is held out ("I laugh."), so the sentence itself is.
            continue
        yield sentence


def split_of(*words: str) -> str:
    """The split that a combination of lemmas belongs to, by a hash that is the same everywhere and always."""
    part = blake2b("|".join(words).encode(), digest_size=1).digest()[0]
    if part < _TEST:
        return "test"
    return "validation" if part < _TEST + _VALIDATION else "train"


@cache
def _is_in(split: str, subject: str, verb: str, completion: str) -> bool:
    return split_of(subject, verb, completion) == split
