"""What is known of languages by their codes: the scripts that they are written in."""

import re
from collections.abc import Iterator, Sequence

import datasets
import pyarrow as pa

from mt.config.data import DataConfig, Script
from mt.data.cleaning.filters import is_mostly_of_other_script
from mt.data.corpus import Corpus
from mt.data.unsegmented_scripts import split_letters

_PAIRS_LOOKED_AT = 3000

# Without languages in several scripts, such as Serbian, Kazakh and Punjabi.
_LANGUAGES: dict[Script, str] = {
    "Arabic": "ar fa ps ug ur",
    "Armenian": "hy",
    "Bengali": "as bn",
    "Cyrillic": "be bg ky mk ru tt uk",
    "Devanagari": "hi mr ne",
    "Ethiopic": "am ti",
    "Georgian": "ka",
    "Greek": "el",
    "Gujarati": "gu",
    "Han": "zh",
    "Hebrew": "he yi",
    "Japanese": "ja",
    "Kannada": "kn",
    "Khmer": "km",
    "Korean": "ko",
    "Lao": "lo",
    "Latin": "af ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv mt nb nl nn no pl pt ro sk sl "
    "so sq sv sw tl tr vi xh zu",
    "Malayalam": "ml",
    "Myanmar": "my",
    "Oriya": "or",
    "Sinhala": "si",
    "Tamil": "ta",
    "Telugu": "te",
    "Thai": "th",
    "Tibetan": "bo dz",
}
_SCRIPTS = {code: script for script, codes in _LANGUAGES.items() for code in codes.split()}


def language_warnings(config: DataConfig, corpus: Corpus) -> Iterator[str]:
    """Splits whose sides are swapped, or in another script than their language is written in."""
    texts = {split: sample_texts(pairs) for split, pairs in corpus.by_name().items()}
    for side, (name, language) in enumerate((("source", config.src), ("target", config.tgt))):
        script = _SCRIPTS.get(_code(language))
        others = [split for split, sides in texts.items() if _is_of_other_script(sides[side], script)]
        if others:
            yield (
                f"most {name}s of the {' and '.join(others)} split are not in {script} script, in which "
                f"{language} is written: check data.src, data.tgt and data.columns."
            )
    # Within a script, the words of a side tell which side it is.
    known_src, known_tgt = (set(_words(side)) for side in texts["train"])
    for split in ("validation", "test"):
        src, tgt = (_words(side) for side in texts[split])
        straight = _share(src, known_src) + _share(tgt, known_tgt)
        if _share(src, known_tgt) + _share(tgt, known_src) > straight + 0.5:
            yield (
                f"source and target of the {split} split look swapped: check data.src, data.tgt, "
                "data.columns and the names of the files."
            )


def _code(language: str) -> str:
    return re.split("[-_]", language.lower())[0]


def sample_texts(pairs: datasets.Dataset) -> tuple[list[str], list[str]]:
    """Some thousand sources and targets, spread evenly."""
    rows = pairs.select(range(0, len(pairs), len(pairs) // _PAIRS_LOOKED_AT + 1))
    return rows["src"][:], rows["tgt"][:]


def _is_of_other_script(texts: Sequence[str], script: Script | None) -> bool:
    return script is not None and bool(
        is_mostly_of_other_script(pa.array(texts, pa.large_string()), script).mean() > 0.5
    )


def _words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in split_letters(text).lower().split()]


def _share(words: Sequence[str], known: set[str]) -> float:
    return sum(word in known for word in words) / max(1, len(words))
