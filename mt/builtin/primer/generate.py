"""Distinct pairs of the primer, and the split that each combination of words belongs to.

The test split holds out *combinations* of subject, verb and object: training has boys who read, and people
who read poems, but a boy who reads a poem may be in the test split only. So a good score shows that grammar
was learnt, not sentences. All splits share the words themselves, and clauses of only a pronoun and a verb
("I laugh"): each such sentence as a whole belongs to one split.
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

# The share of all combinations, in parts of 256; the rest belongs to the training split.
_TEST, _VALIDATION = 26, 26
# The fewest and the most words in an English sentence.
_SHORTEST, _LONGEST = 4, 16
# After this many repetitions in a row, finding new sentences would take too long.
_PATIENCE = 5000
_CHUNK_SIZE = 10_000


def primer_pairs(split: str, num_pairs: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield ``num_pairs`` distinct (English, German) pairs, the same for the same arguments.

    A smaller number gives the first of these pairs.

    Args:
        split: "train", "validation" or "test"; no combination of subject, verb and object is in two of them.
        num_pairs: How many; there are millions.
        seed: Decides what is drawn; the splits are the same for every seed.

    Raises:
        DataError: If the split does not have that many distinct pairs.
    """
    for sentence in primer_sentences(split, num_pairs, seed):
        yield sentence.english, sentence.german


def primer_sentences(split: str, num_sentences: int, seed: int) -> Iterator[Sentence]:
    """Yield the sentences of ``primer_pairs``, with the clauses that they consist of."""
    random = Random(f"primer {split} {seed}")
    drawn = _drawn(Drawing(random, partial(_is_in, split)), split)
    seen = SeenPairs()
    num_left = num_sentences
    repetitions = 0
    while num_left:
        # In large groups, because `SeenPairs` looks hashes up in sorted arrays.
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
    """An endless stream of sentences of the split; some occur more than once."""
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
    """The split that a combination of lemmas belongs to, by a hash that is the same on all machines."""
    part = blake2b("|".join(words).encode(), digest_size=1).digest()[0]
    if part < _TEST:
        return "test"
    return "validation" if part < _TEST + _VALIDATION else "train"


@cache
def _is_in(split: str, subject: str, verb: str, completion: str) -> bool:
    return split_of(subject, verb, completion) == split
