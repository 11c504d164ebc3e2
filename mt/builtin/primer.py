"""``builtin:primer``: English sentences and their German translations, from ``primer.zip``.

A grammar generated them, in ``mt/builtin/primer/`` at commit de2a521. The validation and test splits hold out
*combinations* of subject, verb and object: training has boys who read, and people who read poems, but a boy
who reads a poem may be in the test split only. So a good score shows that grammar was learnt, not sentences.
"""

from collections.abc import Iterator
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from zipfile import ZipFile

MAX_TRAIN_PAIRS = 150_000


def primer_pairs(split: str, num_pairs: int) -> Iterator[tuple[str, str]]:
    """Yield the first ``num_pairs`` (English, German) pairs of "train", "validation" or "test"."""
    with (
        ZipFile(Path(__file__).with_name("primer.zip")) as corpus,
        TextIOWrapper(corpus.open(f"{split}.en"), encoding="utf-8") as english,
        TextIOWrapper(corpus.open(f"{split}.de"), encoding="utf-8") as german,
    ):
        for en, de in islice(zip(english, german, strict=True), num_pairs):
            yield en.rstrip("\n"), de.rstrip("\n")
