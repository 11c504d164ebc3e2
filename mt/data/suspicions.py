"""What looks wrong in a corpus: files and sides that are mistaken for others, and text in another form."""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from datasets import Dataset

from mt.config.config import Config
from mt.config.data import OWN
from mt.config.write import sources_to_yaml
from mt.data.cleaning.filters import is_mostly_of_other_script
from mt.data.corpus import EVALUATION_SPLITS, Corpus
from mt.data.sources.find import unread_files
from mt.data.text_form import TextForm
from mt.data.unsegmented_scripts import is_unsegmented, split_letters
from mt.display import counted, one_line
from mt.sides import SIDES, Sides

_FEWEST_PAIRS = 100
_STRETCH, _MOST_STRETCHES, _CHARACTERS_LOOKED_AT = 100, 30, 1000
# By chance, the correlations of 100 lengths differ by 0.14 or so, as Fisher's z.
_MOST_SHIFT, _LEAST_GAIN, _LEAST_SUM_OF_GAINS = 3, 0.5, 1.0

# Below this, what a text lacks may be chance.
_FEWEST_SOURCES = 1000
_SEVERAL = re.compile(r"\w[.!?][\"'”’)]* +\W?\w|[。！？].")
_ENTITY = r"&(?:amp|quot|apos|lt|gt|nbsp|#\d{2,5});"
# What is found in lines, the share of lines above which it is no accident, what they are, and a remedy.
_FORMS = (
    (r"^\s*<[^<>]+>\s*$", 0.01, "are tags", "take them out of both sides"),
    (r"^\s*<(\w+)[^<>]*>[^<>]+</\1>\s*$", 0.01, "are each in a tag", "take it out: sed -E 's/<[^<>]*>//g'"),
    (_ENTITY, 0.01, "have HTML's names of characters", "set cleaning.unescape_html, or write them out"),
    (r"\w@@(?= \S)", 0.05, "have subword marks (@@)", "join them: sed -E 's/@@( |$)//g'"),
    (r"(?:^| )\u2581\S+", 0.05, "have subword marks (\u2581)", "join them: sed 's/ //g; s/\u2581/ /g'"),
    (r'^"[^"]*(?:""[^"]*)+"$', 0.01, "are quoted cells", "name the table .csv, which is read with quoting"),
    (r"\w [.,](?= |$)", 0.5, "are tokenized", "undo it, as by sacremoses -l LANGUAGE detokenize"),
)

# Without languages in several scripts, such as Serbian, Kazakh and Punjabi.
_OF_SCRIPTS = """
Arabic: ar fa ps ug ur, Armenian: hy, Bengali: as bn, Cyrillic: be bg ky mk ru tt uk, Devanagari: hi mr ne,
Ethiopic: am ti, Georgian: ka, Greek: el, Gujarati: gu, Han: zh, Hebrew: he yi, Japanese: ja, Kannada: kn,
Khmer: km, Korean: ko, Lao: lo, Malayalam: ml, Myanmar: my, Oriya: or, Sinhala: si, Tamil: ta, Telugu: te,
Thai: th, Tibetan: bo dz, Latin: af ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv mt nb nl nn no
pl pt ro sk sl so sq sv sw tl tr vi xh zu
"""
_ENTRY = re.compile(r"(\w+): ([^,]+)")
_SCRIPTS = {code: script for script, codes in _ENTRY.findall(_OF_SCRIPTS) for code in codes.split()}

# Twenty languages with enough of them to tell which side of a pair is which.
_FREQUENT_WORDS = """
cs: a se v na je že to s si, da: og at det er ikke en på til af, de: der die und das ist nicht ein eine mit,
en: the of and to in is was for that a, es: el los las y una del que en, fi: ja on ei se että hän oli mutta,
fr: le la les des et un une est dans, hu: a az és hogy nem egy is van, id: yang dan di ini itu tidak untuk,
it: il di che è per un della non sono, nl: het een van en de dat niet is, no: og det er ikke en på til av,
pl: i w nie się na z jest to że do, pt: o os e não uma do da em para, ro: și în nu de la cu pe este o un,
ru: и в не на что с я он как, sv: och att det som är en inte på, tr: bir ve bu da de için çok ne,
uk: і в не на що з я він як, vi: là và của không có một cho người
"""
_FREQUENT: dict[str, str] = dict(_ENTRY.findall(_FREQUENT_WORDS))


def unsegmented_hint(config: Config, corpus: Corpus) -> str | None:
    """Advice for text without spaces between words that is to be split into words; None for other text."""
    if config.tokenizer.kind != "word":
        return None
    languages: list[str] = []
    for _, direction, sample in _training_samples(config, corpus):
        texts = zip(direction, sample, strict=True)
        languages += [language for language, side in texts if is_unsegmented(side)]
    if not languages:
        return None
    return (
        f"{' and '.join(dict.fromkeys(languages))}: an unsegmented script has no spaces between words: use "
        "tokenizer.kind: bpe_metaspace, because word makes each character a token"
    )


def corpus_warnings(config: Config, corpus: Corpus) -> Iterator[str]:
    """A sentence for each suspicion about some thousand pairs of each split, and what its tokenizer loses."""
    if config.data.mix is not None:
        yield f"data.mix is read as data.sources, which may be written instead:\n{sources_to_yaml(config)}"
    yield from unread_files(config.data)
    yield from small_splits(corpus)
    if hint := unsegmented_hint(config, corpus):
        yield hint
    if config.tokenizer.lowercase:
        yield "tokenizer.lowercase: the model reads and writes lower case only"
    form = TextForm.of(config.cleaning)
    held_out = {}
    for split in EVALUATION_SPLITS:
        held_out[str(split)] = sample_of(corpus.by_name()[split], form)
    for name, direction, sample in _training_samples(config, corpus):
        key, samples = "data", {"train": sample, **held_out}
        if name != OWN:
            key, samples = f"data.sources.{name}", {f"{name} train": sample}
        yield from _language_warnings(key, direction, samples)
        yield from text_warnings(samples)


def _training_samples(config: Config, corpus: Corpus) -> Iterator[tuple[str, Sides[str], list[list[str]]]]:
    """The name and the languages of each source, and a sample of its training pairs."""
    form, start = TextForm.of(config.cleaning), 0
    for name, source in zip((OWN, *config.data.sources), corpus.report.sources, strict=True):
        pairs = corpus.train.select(range(start, start + source.pairs))
        start += source.pairs
        yield name, source.direction, sample_of(pairs, form)


def _language_warnings(
    key: str, direction: Sides[str], samples: Mapping[str, list[list[str]]]
) -> Iterator[str]:
    """A sentence for each side that is not in its language; ``samples`` are of training, then of others."""
    languages = []
    for code in direction:
        languages.append(re.split("[-_]", code.lower())[0])
    for side, language in enumerate(languages):
        script = _SCRIPTS.get(language)
        for split, sample in samples.items():
            if script and is_mostly_of_other_script(pa.array(sample[side]), script).mean() > 0.5:
                what = f"most {('sources', 'targets')[side]} of the {split} split"
                remedy = f"check {key}.src, {key}.tgt and {key}.columns"
                yield f"{what} are not in {script} script, in which {language} is written: {remedy}."
                break
    # Within a script, the words of a side tell which side it is.
    known_src, known_tgt = (set(_FREQUENT.get(language, "").split()) for language in languages)
    for number, (split, sample) in enumerate(samples.items()):
        src, tgt = map(_words, sample)
        straight = _share(src, known_src) + _share(tgt, known_tgt)
        if _share(src, known_tgt) + _share(tgt, known_src) > straight + (0.5 if number else 0.1):
            remedy = f"check {key}.src, {key}.tgt, {key}.columns and the names of the files"
            yield f"source and target of the {split} split look swapped: {remedy}."
        if number == 0:
            known_src, known_tgt = set(src), set(tgt)


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


def text_warnings(samples: Mapping[str, list[list[str]]]) -> Iterator[str]:
    """A sentence for each suspicion about the lines of splits, by their names."""
    for pattern, most, what, remedy in _FORMS:
        shares, examples = list[str](), list[str]()
        for name, sample in samples.items():
            lines = [*sample[0], *sample[1]]
            matches = [match[0] for line in lines if (match := re.search(pattern, line))]
            if len(matches) > most * len(lines):
                shares.append(f"{len(matches) / len(lines):.0%} of the lines of the {name} split")
                examples += matches[:1]
        if shares:
            yield f"{' and '.join(shares)} {what}, such as {one_line(examples[0], 60)}: {remedy}."
    for name, sample in samples.items():
        yield from _shift_warnings(name, sample)


def text_it_lacks(config: Config, corpus: Corpus) -> Iterator[str]:
    """A sentence that names what people write, but no or hardly any source of the training text has."""
    sources, added = sample_of(corpus.train, TextForm.of(config.cleaning))[0], config.as_written
    if len(sources) < _FEWEST_SOURCES:
        return
    ends = [text.rstrip("\"'”’»)] ")[-1:] for text in sources]
    num_cased = sum(text.upper() != text for text in sources)
    num_with_capitals = sum(text.lower() != text for text in sources)
    num_questions = sum(end in "?？؟" for end in ends)
    num_open = sum(end.isalnum() for end in ends)
    num_several = sum(bool(_SEVERAL.search(text)) for text in sources)
    lacking = []
    # Below these shares of the sources.
    if num_cased and num_with_capitals < 0.01 * len(sources):
        lacking.append("capital letters")
    if num_questions < 0.005 * len(sources):
        lacking.append("questions")
    if num_open < 0.05 * len(sources) and not added.no_final_punctuation:
        lacking.append("lines without punctuation at the end")
    if num_several < 0.01 * len(sources) and not added.joined:
        lacking.append("lines of several sentences")
    if lacking:
        yield (
            f"hardly any source of the training text has what people write: {', '.join(lacking)}. What that "
            "costs is shown by mt evaluate --behaviours once it is trained; as_written adds some of it."
        )


def _shift_warnings(name: str, sample: list[list[str]]) -> Iterator[str]:
    """A sentence if, in some stretches, lengths of sources best fit those of targets some lines away."""
    # Dense ranks, so that a few very long lines do not outweigh the others.
    ranks = []
    for side in sample:
        lengths = [len(text) for text in side]
        _, of_side = np.unique(lengths, return_inverse=True)
        ranks.append(of_side)
    gains, shifts = list[float](), list[str]()
    starts = range(0, len(sample[0]) - _STRETCH + 1, _STRETCH)
    for start in starts:
        src, tgt = (side[start : start + _STRETCH] - side[start : start + _STRETCH].mean() for side in ranks)
        products = np.correlate(tgt, src, "full")[_STRETCH - 1 - _MOST_SHIFT : _STRETCH + _MOST_SHIFT]
        # Of correlations just below 1, because the z of 1 is infinite.
        fits = np.arctanh(0.999 * products / max(1.0, float(np.linalg.norm(src) * np.linalg.norm(tgt))))
        shift, gain = int(fits.argmax()) - _MOST_SHIFT, float(fits.max() - np.partition(fits, -2)[-2])
        if shift and gain > _LEAST_GAIN:
            gains.append(gain)
            lines = f"{counted(abs(shift), 'line')} {'later' if shift > 0 else 'earlier'}"
            shifts.append(f"the target of {one_line(sample[0][start], 60)!r} and others may be {lines}")
    if sum(gains) > _LEAST_SUM_OF_GAINS:
        yield (
            f"about {len(gains) / len(starts):.0%} of the pairs of the {name} split look shifted, by "
            f"length: {shifts[0]}. Look for a line before it that one side lacks or has twice."
        )


def sample_of(pairs: Dataset, form: TextForm) -> list[list[str]]:
    """The beginnings of sources and targets in this form: stretches of neighbours, spread evenly."""
    step = len(pairs) // (_STRETCH * _MOST_STRETCHES) + 1
    starts = range(0, len(pairs), _STRETCH * step)
    rows = list[int]()
    for start in starts:
        rows += range(start, min(start + _STRETCH, len(pairs)))
    stretches = pairs.select(rows)
    # One after the other, because any may be long.
    sides = ([row[side][:_CHARACTERS_LOOKED_AT] for row in stretches] for side in SIDES)
    return [form.rewrite(texts) for texts in sides]


def _words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in split_letters(text).lower().split()]


def _share(words: Sequence[str], known: set[str]) -> float:
    return sum(word in known for word in words) / max(1, len(words))
