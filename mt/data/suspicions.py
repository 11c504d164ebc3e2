"""What looks wrong in a corpus: files and sides that are mistaken for others, and text in another form."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mt.config.config import Config
from mt.data.cleaning.filters import is_mostly_of_other_script
from mt.data.corpus import EVALUATION_SPLITS, Corpus
from mt.data.sources.find import unread_files
from mt.data.unsegmented_scripts import bleu_tokenizer, split_letters
from mt.display import counted, one_line

_FEWEST_PAIRS = 100
_STRETCH, _MOST_STRETCHES, _CHARACTERS_LOOKED_AT = 100, 30, 1000
_SHIFTS = (1, -1, 2, -2, 3, -3)
# In a stretch of 100 pairs, chance makes a difference of 0.14 between two fits.
_LEAST_GAIN, _LEAST_SUM_OF_GAINS = 0.5, 1.0

# What is found in lines, the share of lines above which it is no accident, what they are, and a remedy.
_FORMS = (
    (r"^\s*<[^<>]+>\s*$", 0.01, "are tags", "take them out of both sides"),
    (r"^\s*<(\w+)[^<>]*>[^<>]+</\1>\s*$", 0.01, "are each in a tag", "take it out: sed -E 's/<[^<>]*>//g'"),
    (
        r"&(?:amp|quot|apos|lt|gt|nbsp|#\d{2,5});",
        0.01,
        "have HTML's names of characters",
        "set cleaning.unescape_html, or write them out",
    ),
    (r"\S+@@(?= \S)", 0.05, "have subword marks (@@)", "join them: sed -E 's/@@( |$)//g'"),
    (r"(?:^| )\u2581\S+", 0.05, "have subword marks (\u2581)", "join them: sed 's/ //g; s/\u2581/ /g'"),
    (r"\S+ ##\w+", 0.05, "have subword marks (##)", "join them: sed 's/ ##//g'"),
    (r"\S* ?\uffed ?\S+", 0.05, "have subword marks (\uffed)", "join them: sed -E 's/ ?\uffed ?//g'"),
    (
        r'^"[^"]*(?:""[^"]*)+"$',
        0.01,
        "are quoted as by a spreadsheet",
        "name their table .csv, which is read with quoting (data.delimiter: tab if it has tabs)",
    ),
    (
        r"\w+ [.,](?= |$)",
        0.5,
        "are tokenized",
        "undo it (sacremoses -l LANGUAGE detokenize), or the model needs and writes such text",
    ),
)

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

# Of one language, those that another has not as often.
_FREQUENT_WORDS = """
cs: a se v na je že to s si jsem ale jako, da: og at det er ikke en på til af jeg som med,
de: der die und das ist nicht ein eine mit auf den von, en: the of and to in is was for that with on a,
es: el los las y una del que en por con para es, fi: ja on ei se että hän oli mutta kun mitä ovat niin,
fr: le la les des et un une est dans pour que pas, hu: a az és hogy nem egy is van meg volt csak ez,
id: yang dan di ini itu tidak untuk dengan dari akan ada saya, it: il di che è per un della con non sono nel,
nl: het een van en de dat niet is op zijn voor met, no: og det er ikke en på til av jeg som med,
pl: i w nie się na z jest to że do jak o, pt: o os e não uma do da em para com que é,
ro: și în nu de la cu pe este o un să care, ru: и в не на что с я он как это но по,
sv: och att det som är en inte på för med jag har, tr: bir ve bu da de için çok ne ben değil daha gibi,
uk: і в не на що з я він як це та але, vi: là và của không có một cho người trong được những các
"""
_FREQUENT = {
    code.strip(): set(words.split())
    for code, _, words in (line.partition(":") for line in _FREQUENT_WORDS.split(","))
}


class Sample(NamedTuple):
    """The beginnings of sources and targets of some thousand pairs."""

    src: list[str]
    tgt: list[str]
    step: int
    """The number of rows from the first of a stretch of neighbours to the first of the next."""


def unsegmented_hint(config: Config, train: datasets.Dataset) -> str | None:
    """Advice for text without spaces between words that is to be split into words; None for other text."""
    texts = zip((config.data.src, config.data.tgt), sample_of(train)[:2], strict=True)
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
    yield from unread_files(config.data)
    yield from small_splits(corpus)
    if hint := unsegmented_hint(config, corpus.train):
        yield hint
    if config.tokenizer.lowercase:
        yield "tokenizer.lowercase: the model reads and writes lower case only"
    samples = {split: sample_of(pairs) for split, pairs in corpus.by_name().items()}
    languages = [re.split("[-_]", code.lower())[0] for code in (config.data.src, config.data.tgt)]
    for side, (name, language) in enumerate((("source", config.data.src), ("target", config.data.tgt))):
        script = _SCRIPTS.get(languages[side])
        others = [
            split
            for split, sample in samples.items()
            if script and is_mostly_of_other_script(pa.array(sample[side]), script).mean() > 0.5
        ]
        if others:
            yield (
                f"most {name}s of the {' and '.join(others)} split are not in {script} script, in which "
                f"{language} is written: check data.src, data.tgt and data.columns."
            )
    # Within a script, the words of a side tell which side it is.
    known, margin = [_FREQUENT.get(language, set[str]()) for language in languages], 0.1
    for split, sample in samples.items():
        words = [_words(sample.src), _words(sample.tgt)]
        if _share_known(words, known[::-1]) > _share_known(words, known) + margin:
            yield (
                f"source and target of the {split} split look swapped: check data.src, data.tgt, "
                "data.columns and the names of the files."
            )
        if split == "train":
            known, margin = [set(side) for side in words], 0.5
        yield from text_warnings(f"the {split} split", sample)


def small_splits(corpus: Corpus) -> Iterator[str]:
    """A sentence for validation and test splits whose scores say little."""
    for name in EVALUATION_SPLITS:
        num_pairs, origin = len(corpus.by_name()[name]), corpus.report.splits[name].origin
        if num_pairs < _FEWEST_PAIRS:
            more = ", or raise data.held_out_fraction" if origin == "carved" else ""
            yield (
                f"the {name} split has {counted(num_pairs, 'pair')}: below {_FEWEST_PAIRS}, scores are "
                f"mostly chance. Add pairs{more}."
            )


def text_warnings(where: str, sample: Sample) -> Iterator[str]:
    """A sentence for each suspicion about the lines of one split or test set, called ``where``."""
    lines = [*sample.src, *sample.tgt]
    for pattern, most, what, remedy in _FORMS:
        matches = [match for match in map(re.compile(pattern).search, lines) if match]
        share = len(matches) / max(1, len(lines))
        if share > most:
            example = one_line(matches[0][0], 60)
            yield f"{share:.0%} of the lines of {where} {what}, such as {example}: {remedy}."
    yield from _shift_warnings(where, sample)


def _shift_warnings(where: str, sample: Sample) -> Iterator[str]:
    """A sentence if, in some stretches, lengths of sources fit those of targets some lines away better."""
    # Dense ranks, so that a few very long lines do not outweigh the others.
    src, tgt = (np.unique([len(text) for text in side], return_inverse=True)[1] for side in sample[:2])
    gains: list[tuple[float, int, int]] = []
    num_stretches = len(src) // _STRETCH
    for number in range(num_stretches):
        stretch = slice(number * _STRETCH, (number + 1) * _STRETCH)
        own = _fit(src[stretch], tgt[stretch], 0)
        gain, shift = max((_fit(src[stretch], tgt[stretch], shift) - own, shift) for shift in _SHIFTS)
        if gain > _LEAST_GAIN:
            gains.append((gain, shift, number * sample.step + 1))
    if sum(gain for gain, _, _ in gains) > _LEAST_SUM_OF_GAINS:
        _, shift, first = gains[0]
        lines = f"{counted(abs(shift), 'line')} {'later' if shift > 0 else 'earlier'}"
        yield (
            f"about {len(gains) / num_stretches:.0%} of the pairs of {where} look shifted, from about pair "
            f"{first:,} on: there, sources have the lengths of the targets {lines}. A line is missing or "
            "doubled on one side before it: correct the files, or leave these pairs out."
        )


def _fit(src: npt.NDArray[np.int64], tgt: npt.NDArray[np.int64], shift: int) -> float:
    """How well sources go with the targets ``shift`` rows later: the correlation, as Fisher's z."""
    if shift < 0:
        return _fit(tgt, src, -shift)
    src, tgt = src[: len(src) - shift], tgt[shift:]
    one, other = src - src.mean(), tgt - tgt.mean()
    norm = float(np.sqrt((one @ one) * (other @ other)))
    # Not quite 1, whose z is infinite.
    return float(np.arctanh(0.999 * (one @ other) / max(norm, 1.0)))


def sample_of(pairs: datasets.Dataset) -> Sample:
    """The beginnings of some thousand pairs: stretches of neighbours, spread evenly."""
    step = _STRETCH * max(1, -(-len(pairs) // (_STRETCH * _MOST_STRETCHES)))
    indices: list[int] = []
    for first in range(0, len(pairs), step):
        indices += range(first, min(first + _STRETCH, len(pairs)))
    rows = pairs.select(indices)
    # One after the other, because any may be long.
    src, tgt = ([row[side][:_CHARACTERS_LOOKED_AT] for row in rows] for side in ("src", "tgt"))
    return Sample(src, tgt, step)


def _words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in split_letters(text).lower().split()]


def _share_known(sides: Sequence[Sequence[str]], known: Sequence[set[str]]) -> float:
    """The share of known words on one side plus that on the other."""
    share = 0.0
    for words, known_words in zip(sides, known, strict=True):
        share += sum(word in known_words for word in words) / max(1, len(words))
    return share
