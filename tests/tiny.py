"""A small corpus of English and German for tests."""

import random
from itertools import product

SUBJECTS = {"the dog": "der Hund", "a child": "ein Kind", "my aunt": "meine Tante", "Anna": "Anna"}
VERBS = {"sees": "sieht", "finds": "findet", "buys": "kauft", "paints": "malt"}
OBJECTS = {"a house": "ein Haus", "the car": "das Auto", "milk": "Milch", "two red apples": "zwei rote Äpfel"}
ENDINGS = {"!": "!", ".": ".", " today.": " heute."}


def tiny_pairs() -> list[tuple[str, str]]:
    """192 pairs of English and German, in an order that looks random."""
    parts = product(SUBJECTS.items(), VERBS.items(), OBJECTS.items(), ENDINGS.items())
    pairs = [
        (f"{s_en} {v_en} {o_en}{e_en}", f"{s_de} {v_de} {o_de}{e_de}")
        for (s_en, s_de), (v_en, v_de), (o_en, o_de), (e_en, e_de) in parts
    ]
    random.Random(1).shuffle(pairs)
    return pairs
