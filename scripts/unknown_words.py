"""How many words that a model has never seen arrive in its translations, and how many in the right place.

    python scripts/unknown_words.py runs/multi30k --data FOLDER

Made-up names and numbers are put into the test split of an English-German corpus of image captions, the same
into source and reference, one a sentence, in the place of a noun or a number word. Printed are the share of
them that occur in the translation once, the share that are in the right place, and the scores of the test
split as it is. In the right place a word has a neighbour that it also has in the reference, or that the word
it replaces has in the model's own translation of the sentence as it was.
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mt.config.load import load_config
from mt.data.corpus import load_split
from mt.data.tokenizers.tokenizer import Tokenizer
from mt.evaluation.scores import score_translations
from mt.inference.translator import Translator
from mt.run_directory import RunDirectory
from mt.search.strategy import Beam
from mt.special_tokens import UNK_ID

NOUNS = {
    "man": "Mann", "woman": "Frau", "boy": "Junge", "girl": "Mädchen", "dog": "Hund", "child": "Kind",
    "street": "Straße", "shirt": "Hemd", "hat": "Hut", "ball": "Ball", "water": "Wasser",
    "guitar": "Gitarre", "car": "Auto", "bench": "Bank", "beach": "Strand", "wall": "Wand",
    "building": "Gebäude", "table": "Tisch", "camera": "Kamera", "horse": "Pferd", "bike": "Fahrrad",
    "bicycle": "Fahrrad", "crowd": "Menschenmenge", "field": "Feld", "park": "Park", "snow": "Schnee",
    "grass": "Gras", "baby": "Baby", "tree": "Baum", "people": "Personen", "men": "Männer",
    "women": "Frauen", "children": "Kinder", "dogs": "Hunde",
}  # fmt: skip
COUNTS = {"two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "several": "mehrere"}
PERSONS = {"A man": "Ein Mann", "A woman": "Eine Frau", "A boy": "Ein Junge", "A girl": "Ein Mädchen"} | {
    "A young man": "Ein junger Mann", "A young woman": "Eine junge Frau", "A dog": "Ein Hund",
    "A little girl": "Ein kleines Mädchen", "A young boy": "Ein kleiner Junge", "A person": "Eine Person",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A sentence pair with a made-up word on both sides.

    Attributes:
        kind: Of what kind the word is.
        word: The made-up word.
        source: The sentence with it.
        reference: Its translation with it.
        original: The sentence as it was.
        replaced: What stood in its translation in the place of the made-up word.
    """

    kind: str
    word: str
    source: str
    reference: str
    original: str
    replaced: str


def cases(sources: list[str], references: list[str], tokenizer: Tokenizer) -> Iterator[Case]:
    """A case for each pair that has something to put a made-up word in the place of."""
    generator = random.Random(1)
    for number, (source, reference) in enumerate(zip(sources, references, strict=True)):
        name, figure = made_up_name(generator), made_up_number(generator)
        ways = [
            ("a name for a person", name, PERSONS, r"\A{}\b"),
            ("a name for a thing", name, NOUNS, r"\b{}\b"),
            ("a number", figure, COUNTS, r"(?i)\b{}\b"),
        ]
        # The kind that a sentence is asked for first goes round, so that there are some of each.
        for kind, word, pairs, pattern in ways[number % 3 :] + ways[: number % 3]:
            found = [
                Case(kind, word, *sentences, source, pair[1].split()[-1])
                for pair in pairs.items()
                if (sentences := with_word(source, reference, pair, pattern, word))
            ]
            if found and UNK_ID in tokenizer.encode(word) and word not in source + reference:
                yield found[0]
                break


def with_word(
    source: str, reference: str, pair: tuple[str, str], pattern: str, word: str
) -> tuple[str, str] | None:
    """Both sentences with the word put in; None unless each has the place once."""
    new = [
        re.subn(pattern.format(re.escape(old)), word, text)
        for old, text in zip(pair, (source, reference), strict=True)
    ]
    return (new[0][0], new[1][0]) if all(count == 1 for _, count in new) else None


def made_up_name(generator: random.Random) -> str:
    """Such as Zorblat."""
    parts = ["zor", "blat", "quin", "vex", "mog", "dri", "plu", "tar", "nub", "wix"]
    syllables = generator.choices(parts, k=3)
    return "".join(syllables[: generator.randint(2, 3)]).capitalize()


def made_up_number(generator: random.Random) -> str:
    """Such as 4711-23, 4711 or 4,711.5."""
    form = generator.choice(["{}-{}", "{}", "{},{}.5", "{}/{}", "B-{}"])
    return form.format(generator.randint(1100, 9999), generator.randint(110, 999))


def is_in_place(word: str, translation: str, others: list[tuple[str, str]]) -> bool:
    """Whether ``word`` is between the same neighbours as in one of ``others``, a word and a text each.

    It is enough if the word, punctuation mark or end of the sentence on one side is the same.
    """
    ours = neighbours(word, translation)
    return any(
        mine == theirs
        for other in others
        for mine, theirs in zip(ours, neighbours(*other), strict=True)
        if mine is not None
    )


def neighbours(word: str, text: str) -> tuple[str | None, str | None]:
    """The words before and after a word in German, without endings: a made-up word has no gender."""
    words = re.findall(r"\w+|[^\w\s]", f"^ {text} $".replace(word, " MADEUP ").lower())
    if words.count("madeup") != 1:
        return None, None
    place = words.index("madeup")
    return without_ending(words[place - 1]), without_ending(words[place + 1])


def without_ending(word: str) -> str:
    """Such as ein for einem, der for das, in for im."""
    if word in {"der", "die", "das", "dem", "den", "des"}:
        return "der"
    if word in {"im", "am", "vom", "zum", "zur", "beim"}:
        return {"im": "in", "am": "an", "vom": "von", "zum": "zu", "zur": "zu", "beim": "bei"}[word]
    return re.sub(r"(?<=...)(e|er|en|em|es)$", "", word)


def arrives(case: Case, translation: str) -> bool:
    """Whether the word occurs in the translation once, with nothing attached."""
    return len(re.findall(rf"(?<!\w){re.escape(case.word)}(?!\w)", translation)) == 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", help="the corpus; default: the run's own")
    parser.add_argument("--engine", choices=["torch", "ctranslate2"], default="torch")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--show", type=int, default=0, help="show so many words that went astray")
    options = parser.parse_args()
    run = RunDirectory(options.run)
    translator = Translator.from_run(run, device="cpu", precision="float32", engine=options.engine)
    print(translator.described)
    data = load_config(run.config_file).data
    pairs = load_split(data.model_copy(update={"path": options.data or data.path}), "test")
    sources, references = list(pairs["src"]), list(pairs["tgt"])
    found = list(cases(sources, references, Tokenizer.load(run.src_tokenizer_file)))
    strategy = Beam(options.beam, 1.0) if options.beam > 1 else None
    translations = translator.translate([case.source for case in found], strategy=strategy)
    originals = translator.translate([case.original for case in found], strategy=strategy)
    rows: dict[str, Counter[str]] = {}
    for case, translation, original in zip(found, translations, originals, strict=True):
        arrived = arrives(case, translation)
        others = [(case.word, case.reference), (case.replaced, original)]
        in_place = arrived and is_in_place(case.word, translation, others)
        for kind in (case.kind, "all"):
            rows.setdefault(kind, Counter()).update(sentences=1, arrive=arrived, in_place=in_place)
        if not in_place and options.show > 0:
            options.show -= 1
            print(f"{case.source}\n  {translation}\n  {case.reference}")
    print(f"{'':22}sentences  arrive  in the right place")
    for kind, row in sorted(rows.items()):
        shares = [100 * row[key] / row["sentences"] for key in ("arrive", "in_place")]
        print(f"{kind:22}{row['sentences']:9}  {shares[0]:4.1f} %  {shares[1]:16.1f} %")
    for score in score_translations(translator.translate(sources, strategy=strategy), references).values():
        print(f"ordinary test split: {score}")


if __name__ == "__main__":
    main()
