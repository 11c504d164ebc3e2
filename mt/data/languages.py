"""What is known of languages by their codes: the scripts that they are written in, and dotless letters."""

import re
from collections.abc import Iterator, Sequence

import datasets
import pyarrow as pa
from tokenizers import normalizers

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
DOTLESS = {"İ": "i", "I": "ı"}
"""Capital letters that have another lower case in Turkish and Azeri than elsewhere."""


def dotless_steps() -> list[normalizers.Normalizer]:
    """The normalizers that write `DOTLESS` letters in lower case."""
    return [normalizers.Replace(capital, small) for capital, small in DOTLESS.items()]


def has_dotless_i(language: str) -> bool:
    """Whether ``language``, as the config names it, is Turkish or Azeri."""
    return _code(language) in ("tr", "tur", "az", "aze")


def language_warnings(config: DataConfig, corpus: Corpus) -> Iterator[str]:
    """Splits whose sides are swapped, or in another script than their language is written in."""
    texts = {split: sample_texts(pairs) for split, pairs in corpus.by_name().items()}
    sides = [
        (name, language, _SCRIPTS.get(_code(language)))
        for name, language in (("source", config.src), ("target", config.tgt))
    ]
    swapped: list[str] = []
    foreign: dict[tuple[str, str, Script | None], list[str]] = {side: [] for side in sides}
    for split, (src, tgt) in texts.items():
        found = [side for side, own in zip(sides, (src, tgt), strict=True) if _is_foreign(own, side[2])]
        if len(found) == 2 and not _is_foreign(src, sides[1][2]) and not _is_foreign(tgt, sides[0][2]):
            swapped.append(split)
        else:
            for side in found:
                foreign[side].append(split)
    for (name, language, script), splits in foreign.items():
        if splits:
            yield (
                f"most {name}s of the {' and '.join(splits)} split are not in {script} script, in which "
                f"{language} is written: check data.src, data.tgt and data.columns."
            )
    # Within a script, the words of a side tell which side it is.
    known_src, known_tgt = (set(_words(side)) for side in texts["train"])
    for split in () if swapped else ("validation", "test"):
        src, tgt = (_words(side) for side in texts[split])
        straight = _share(src, known_src) + _share(tgt, known_tgt)
        if _share(src, known_tgt) + _share(tgt, known_src) > straight + 0.5:
            swapped.append(split)
    if swapped:
        yield (
            f"source and target of the {' and '.join(swapped)} split look swapped: check data.src, data.tgt, "
            "data.columns and the names of the files."
        )


def _code(language: str) -> str:
    return re.split("[-_]", language.lower())[0]


def sample_texts(pairs: datasets.Dataset) -> tuple[list[str], list[str]]:
    """Some thousand sources and targets, spread evenly."""
    rows = pairs.select(range(0, len(pairs), len(pairs) // _PAIRS_LOOKED_AT + 1))
    return rows["src"][:], rows["tgt"][:]


def _is_foreign(texts: Sequence[str], script: Script | None) -> bool:
    if script is None:
        return False
    return bool(is_mostly_of_other_script(pa.array(texts, pa.large_string()), script).mean() > 0.5)


def _words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in split_letters(text).lower().split()]


def _share(words: Sequence[str], known: set[str]) -> float:
    return sum(word in known for word in words) / max(1, len(words))
