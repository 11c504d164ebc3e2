"""``builtin:reverse``: sentences of random words, and the same words in reversed order.

This is the smallest task that needs attention over the whole sentence: the first target word is the last
source word.
``builtin:reverse-characters`` reverses the letters of a word: words of random letters, and their reversals.
"""

from collections.abc import Iterator
from hashlib import blake2b
from random import Random
from string import ascii_lowercase

# Words in a sentence, or letters in a word.
MIN_WORDS, MAX_WORDS = 4, 16
_LIST = """
ant apple arm autumn bag ball banana bear bed bee bell bench bird boat book bottle box bread bridge
brush bus cake camel candle carrot castle cat chair cheese cloud coat coin corn cow crown cup desk
dog door dragon drum duck ear earth egg engine eye feather fire fish flag flower forest fork fox
frog garden gate ghost goat gold grass hammer hand hat hill honey horse house ice island jacket jar
key king kite knife ladder lake lamp leaf lemon lion map milk moon mountain mouse nail needle nest
night nose ocean onion orange owl paint paper pear pencil piano pillow pond queen rabbit rain ring
river road rocket roof rope rose salt sand school sea seed sheep ship shoe silver snake snow soap
sock spoon star stone storm sugar summer sun table tea tent tiger tower train tree valley village
violin wall water whale wheel wind window winter wolf wood
"""
WORDS = tuple(_LIST.split())

# The share of all sentences, in parts of 256; the rest belongs to the training split.
_TEST, _VALIDATION = 26, 26


def reverse_pairs(split: str, num_pairs: int, *, characters: bool = False) -> Iterator[tuple[str, str]]:
    """Yield ``num_pairs`` distinct (sentence, reversed sentence) pairs of "train", "validation" or "test".

    They are the same for the same arguments, and a smaller number gives the first of these. Lengths and words
    are drawn uniformly, so that only the order can be learnt.
    """
    task = "reverse characters" if characters else "reverse"
    units, separator = (ascii_lowercase, "") if characters else (WORDS, " ")
    random = Random(f"{task} {split} 1")
    seen = set[str]()
    while len(seen) < num_pairs:
        words = random.choices(units, k=random.randint(MIN_WORDS, MAX_WORDS))
        sentence = separator.join(words)
        if sentence not in seen and _split_of(sentence) == split:
            seen.add(sentence)
            yield sentence, separator.join(reversed(words))


def _split_of(sentence: str) -> str:
    part = blake2b(sentence.encode(), digest_size=9).digest()[0]
    if part < _TEST:
        return "test"
    return "validation" if part < _TEST + _VALIDATION else "train"
