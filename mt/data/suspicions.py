"""What looks wrong in a corpus: sides in another script, swapped sides, and markup that was left."""

import re
from collections.abc import Iterator, Sequence

import datasets
import pyarrow as pa

from mt.config.config import Config
from mt.data.cleaning.filters import is_mostly_of_other_script
from mt.data.corpus import Corpus
from mt.data.unsegmented_scripts import bleu_tokenizer, split_letters

_PAIRS_LOOKED_AT, _CHARACTERS_LOOKED_AT = 3000, 1000
_TAG = re.compile(r"\s*<[^<>]+>\s*")
_ENTITY = re.compile(r"&(?:amp|quot|apos|lt|gt|nbsp|#\d{2,5});")
_MOST_MARKUP = 0.01
"""The share of lines above which markup is no accident."""

# Without languages in several scripts, such as Serbian, Kazakh and Punjabi.
_SCRIPTS_OF_LANGUAGES = """
Arabic: ar fa ps ug ur, Armenian: hy, Bengali: as bn, Cyrillic: be bg ky mk ru tt uk, Devanagari: hi mr ne,
Ethiopic: am ti, Georgian: ka, Greek: el, Gujarati: gu, Han: zh, Hebrew: he yi, Japanese: ja, Kannada: kn,
Khmer: km, Korean: ko, Lao: lo, Malayalam: ml, Myanmar: my, Oriya: or, Sinhala: si, Tamil: ta, Telugu: te,
Thai: th, Tibetan: bo dz, Latin: af ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv mt nb nl nn no
pl pt ro sk sl so sq sv sw tl tr vi xh zu
"""
_SCRIPTS = {
    code: script.strip()
    for script, _, codes in (line.partition(":") for line in _SCRIPTS_OF_LANGUAGES.split(","))
    for code in codes.split()
}


def unsegmented_hint(config: Config, train: datasets.Dataset) -> str | None:
    """Advice for text without spaces between words that is to be split into words; None for other text."""
    texts = zip((config.data.src, config.data.tgt), _sample(train), strict=True)
    sides = [language for language, side in texts if bleu_tokenizer(side) != "13a"]
    if config.tokenizer.kind != "word" or not sides:
        return None
    return (
        f"{' and '.join(sides)}: an unsegmented script has no spaces between words, so that tokenizer.kind: "
        "word makes each character a token. Use tokenizer.kind: bpe_metaspace, which joins characters that "
        "often occur together"
    )


def corpus_warnings(config: Config, corpus: Corpus) -> Iterator[str]:
    """A sentence for each suspicion about some thousand pairs of each split, and what its tokenizer loses."""
    if hint := unsegmented_hint(config, corpus.train):
        yield hint
    if config.tokenizer.lowercase:
        yield "tokenizer.lowercase: the model reads and writes lower case only"
    texts = {split: _sample(pairs) for split, pairs in corpus.by_name().items()}
    for side, (name, language) in enumerate((("source", config.data.src), ("target", config.data.tgt))):
        script = _SCRIPTS.get(re.split("[-_]", language.lower())[0])
        others = [
            split
            for split, sides in texts.items()
            if script and is_mostly_of_other_script(pa.array(sides[side]), script).mean() > 0.5
        ]
        if others:
            yield (
                f"most {name}s of the {' and '.join(others)} split are not in {script} script, in which "
                f"{language} is written: check data.src, data.tgt and data.columns."
            )
    # Within a script, the words of a side tell which side it is.
    known_src, known_tgt = (set(_words(side)) for side in texts["train"])
    for split, sides in texts.items():
        src, tgt = map(_words, sides)
        straight = _share(src, known_src) + _share(tgt, known_tgt)
        if _share(src, known_tgt) + _share(tgt, known_src) > straight + 0.5:
            yield (
                f"source and target of the {split} split look swapped: check data.src, data.tgt, "
                "data.columns and the names of the files."
            )
        lines = [*sides[0], *sides[1]]
        tags = [line.strip() for line in lines if _TAG.fullmatch(line)]
        names = [match[0] for line in lines if (match := _ENTITY.search(line))]
        for found, what, remedy in (
            (tags, "are tags", "take them out of both sides"),
            (names, "have HTML's names of characters", "set cleaning.unescape_html, or write them out"),
        ):
            if len(found) > _MOST_MARKUP * len(lines):
                share = len(found) / len(lines)
                yield f"{share:.0%} of the lines of the {split} split {what}, such as {found[0]}: {remedy}."


def _sample(pairs: datasets.Dataset) -> list[list[str]]:
    """The beginnings of sources and targets, spread evenly."""
    rows = pairs.select(range(0, len(pairs), len(pairs) // _PAIRS_LOOKED_AT + 1))
    # One after the other, because any may be long.
    return [[row[side][:_CHARACTERS_LOOKED_AT] for row in rows] for side in ("src", "tgt")]


def _words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in split_letters(text).lower().split()]


def _share(words: Sequence[str], known: set[str]) -> float:
    return sum(word in known for word in words) / max(1, len(words))
