"""The words of the primer with their forms and properties, read from the YAML files beside this one."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import yaml

Case = Literal["nominative", "accusative", "dative"]
Gender = Literal["m", "f", "n"]
# Four forms serve both languages: the polite "Sie" takes the form of "wir", as "you" takes that of "we".
Agreement = Literal["ich", "du", "er", "wir"]
Tense = Literal["present", "progressive", "future", "past", "perfect", "modal"]

AGREEMENTS: tuple[Agreement, ...] = ("ich", "du", "er", "wir")
GENDERS: dict[str, Gender] = {"der": "m", "die": "f", "das": "n"}


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective: ``german`` stands alone ("teuer"), ``stem`` takes endings ("teur-e")."""

    english: str
    german: str
    stem: str
    classes: frozenset[str]


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun of both languages; ``plural`` is empty for a substance ("water")."""

    english: str
    english_plural: str
    gender: Gender
    german: str
    oblique: str
    plural: str
    dative_plural: str
    classes: frozenset[str]
    adjectives: tuple[Adjective, ...]


@dataclass(frozen=True, eq=False)
class Place:
    """How one is at a place (German dative) and how one gets there."""

    noun: Noun
    at: tuple[str, str]
    to: tuple[str, str]
    to_case: Case


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb of both languages, and the things that make sense with it.

    ``present`` holds one German form for each of ``AGREEMENTS``, and so does ``preterite``, but only for the
    verb whose past tense is not the perfect ("war"). ``subjects``, ``objects`` (class by class),
    ``receivers`` and so on are the nouns that fit; the flags are explained in verbs.yaml.
    """

    lemma: str
    english: str
    third_person: str
    past: str
    participle: str
    ing: str
    particle: str
    preposition: str
    infinitive: str
    prefix: str
    present: tuple[str, ...]
    preterite: tuple[str, ...]
    german_participle: str
    auxiliary: str
    object_case: Case
    german_preposition: str
    subjects: tuple[Noun, ...]
    objects: tuple[tuple[Noun, ...], ...]
    receivers: tuple[Noun, ...]
    locations: tuple[Place, ...]
    destinations: tuple[Place, ...]
    where: tuple[Place, ...]
    instruments: tuple[tuple[Adjective, Noun], ...]
    company: bool
    beneficiary: bool
    state: bool
    no_ing: bool
    once: bool
    unplanned: bool
    single: bool
    singular: bool
    owns: bool

    @property
    def bare_infinitive(self) -> str:
        """The infinitive with its prefix: "aufmachen"."""
        return self.prefix + self.infinitive


@dataclass(frozen=True, eq=False)
class Time:
    """An expression of time, and how it behaves beside the rest of the clause."""

    english: str
    german: str
    tenses: frozenset[str]
    middle: bool = False
    front: bool = False
    negatable: bool = False
    settled: bool = False


@dataclass(frozen=True, eq=False)
class Modal:
    """A modal verb; ``german`` holds one form for each of ``AGREEMENTS``."""

    english: str
    german: tuple[str, ...]


# What somebody or something is like, and what people do for that reason or in spite of it.
Doings = tuple[tuple[Adjective, tuple[Verb, ...]], ...]


@dataclass(frozen=True, eq=False)
class Lexicon:
    """All the words; ``pronouns`` and ``you`` map a name to the six columns of words.yaml."""

    nouns: dict[str, Noun]
    adjectives: dict[str, Adjective]
    states: tuple[Adjective, ...]
    moods: tuple[Adjective, ...]
    passing: tuple[Adjective, ...]
    places: dict[str, Place]
    verbs: tuple[Verb, ...]
    leads_to: Doings
    in_spite: Doings
    because_of: Doings
    saying: tuple[Verb, ...]
    be: Verb
    pronouns: dict[str, list[str]]
    you: dict[str, list[str]]
    possessives: dict[str, str]
    names: dict[str, list[str]]
    surnames: list[str]
    numbers: dict[str, str]
    auxiliaries: dict[str, tuple[str, ...]]
    modals: dict[str, Modal]
    times: tuple[Time, ...]
    spans: tuple[Time, ...]


@cache
def load_lexicon() -> Lexicon:
    """Read the lexicon, once.

    Raises:
        ValueError: If an entry contradicts itself or names a class or word that does not exist.
    """
    words = _read("words.yaml")
    grammar = _read("adjectives.yaml")
    adjectives = {english: _adjective(english, *row) for english, row in grammar["adjectives"].items()}
    things = _read("nouns.yaml")
    nouns = {english: _noun(english, row, adjectives) for english, row in things["nouns"].items()}
    places = {name: _place(nouns[name], **row) for name, row in things["places"].items()}
    verbs = _read("verbs.yaml")
    preterites = {name: tuple(forms) for name, forms in words["preterites"].items()}

    def build(lemma: str, entry: dict[str, Any]) -> Verb:
        return _verb(lemma, entry, nouns, places, adjectives, preterites)

    built = {lemma: build(lemma, entry) for lemma, entry in verbs["verbs"].items()}

    def doings(key: str) -> Doings:
        return tuple(
            (adjectives[state], tuple(built[lemma] for lemma in lemmas))
            for state, lemmas in grammar[key].items()
        )

    return Lexicon(
        nouns=nouns,
        adjectives=adjectives,
        states=tuple(adjectives[name] for name in grammar["states"]),
        moods=tuple(adjectives[name] for name in grammar["moods"]),
        passing=tuple(adjectives[name] for name in grammar["passing"]),
        places=places,
        verbs=tuple(built.values()),
        leads_to=doings("leads_to"),
        in_spite=doings("in_spite"),
        because_of=doings("because_of"),
        saying=tuple(build(lemma, entry) for lemma, entry in verbs["saying"].items()),
        be=build("be", _BE | {"present": words["auxiliaries"]["sein"]}),
        pronouns=words["pronouns"],
        you=words["you"],
        possessives=words["possessives"],
        names=words["names"],
        surnames=words["surnames"],
        numbers=words["numbers"],
        auxiliaries={name: tuple(forms) for name, forms in words["auxiliaries"].items()},
        modals={english: Modal(english, tuple(forms)) for english, forms in words["modals"].items()},
        times=tuple(_time(*row) for row in words["times"]),
        spans=_spans(words["spans"], words["numbers"]),
    )


# "be" is the only verb whose English forms do not fit into the table of four; sentence.py has them.
_BE: dict[str, Any] = {
    "english": "is was been being",
    "german": "sein bist ist gewesen",
    "auxiliary": "sein",
    "subject": "person animal",
}


def _read(name: str) -> Any:
    # The C parser is ten times as fast, and not in every build of PyYAML.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=loader)


def _adjective(english: str, german: str, classes: str, stem: str | None = None) -> Adjective:
    return Adjective(english, german, stem or german, frozenset(classes.split()))


def _noun(english: str, row: list[str], adjectives: dict[str, Adjective]) -> Noun:
    english_plural, singular, plural, class_names, *oblique = row
    article, german = singular.split()
    if article not in GENDERS or (plural == "-") != (english_plural == "-"):
        raise ValueError(f"nouns.yaml, {english}: article {article!r} or one plural without the other")
    classes = frozenset(class_names.split())
    plural = plural.removeprefix("die ").removeprefix("-")
    return Noun(
        english=english,
        english_plural=english_plural.removeprefix("-"),
        gender=GENDERS[article],
        german=german,
        oblique=oblique[0] if oblique else german,
        plural=plural,
        dative_plural=plural if plural.endswith(("n", "s")) or not plural else plural + "n",
        classes=classes,
        adjectives=tuple(
            adjective for adjective in adjectives.values() if adjective.classes & (classes | {english})
        ),
    )


def _place(noun: Noun, at: str, to: str) -> Place:
    english_at, german_at = at.split()
    english_to, german_to, case = to.split()
    if case not in ("accusative", "dative"):
        raise ValueError(f"nouns.yaml, places, {noun.english}: no such case {case!r}")
    return Place(noun, (english_at, german_at), (english_to, german_to), _case(case))


def _verb(
    lemma: str,
    entry: dict[str, Any],
    nouns: dict[str, Noun],
    places: dict[str, Place],
    adjectives: dict[str, Adjective],
    preterites: dict[str, tuple[str, ...]],
) -> Verb:
    def fitting(class_names: str) -> tuple[Noun, ...]:
        """The nouns of these classes (or of this name), except those that cannot be objects of this verb."""
        wanted = set(class_names.split())
        unwanted = set(entry.get("not_object", "").split())
        chosen = [
            noun
            for noun in nouns.values()
            if (names := noun.classes | {noun.english}) & wanted and not names & unwanted
        ]
        known = set(nouns).union(*(noun.classes for noun in nouns.values()))
        if unknown := (wanted | unwanted) - known:
            raise ValueError(f"verbs.yaml, {lemma}: no noun is of class {', '.join(sorted(unknown))}")
        return tuple(chosen)

    def fitting_places(key: str) -> tuple[Place, ...]:
        return tuple(places[noun.english] for noun in fitting(entry.get(key, "")) if noun.english in places)

    third_person, past, participle, ing = entry["english"].split()
    infinitive, du, er, german_participle = entry["german"].split()
    # "lesen" -> "lese", but "füttern" -> "füttere"; the plural is the infinitive.
    stem = infinitive.removesuffix("en") if infinitive.endswith("en") else infinitive.removesuffix("n")
    german_preposition, case = entry.get("with_preposition", f" {entry.get('case', 'accusative')}").split(" ")
    return Verb(
        lemma=lemma,
        english=lemma.split()[0],
        third_person=third_person,
        past=past,
        participle=participle,
        ing=ing,
        particle=entry.get("particle", ""),
        preposition=entry.get("preposition", ""),
        infinitive=infinitive,
        prefix=entry.get("prefix", ""),
        present=tuple(entry.get("present", (entry.get("ich", f"{stem}e"), du, er, infinitive))),
        preterite=preterites.get(infinitive, ()),
        german_participle=german_participle,
        auxiliary=entry.get("auxiliary", "haben"),
        object_case=_case(case),
        german_preposition=german_preposition,
        subjects=fitting(entry.get("subject", "person")),
        objects=tuple(nouns for nouns in map(fitting, entry.get("object", "").split()) if nouns),
        receivers=fitting(entry.get("receiver", "")),
        locations=fitting_places("location"),
        destinations=fitting_places("destination"),
        where=fitting_places("where"),
        instruments=tuple(
            (adjectives[words.split()[0]], nouns[words.split()[1]]) for words in entry.get("instrument", ())
        ),
        company=entry.get("company", False),
        beneficiary=entry.get("beneficiary", False),
        state=entry.get("state", False),
        no_ing=entry.get("no_ing", False),
        once=entry.get("once", False),
        unplanned=entry.get("unplanned", False),
        single=entry.get("single", False),
        singular=entry.get("singular", False),
        owns=entry.get("owns", False),
    )


def _case(name: str) -> Case:
    return "dative" if name == "dative" else "accusative"


def _time(english: str, german: str, tenses: str, flags: str = "") -> Time:
    words = set(flags.split())
    return Time(
        english,
        german,
        frozenset(tenses.split()),
        middle="middle" in words,
        front="front" in words,
        negatable="not" in words,
        settled="settled" in words,
    )


def _spans(units: dict[str, str], numbers: dict[str, str]) -> tuple[Time, ...]:
    """ "three days ago" and "in three days", for every number and unit."""
    spans = []
    for unit, german_unit in units.items():
        for number, german_number in numbers.items():
            ago = f"{number} {unit} ago", f"vor {german_number} {german_unit}"
            ahead = f"in {number} {unit}", f"in {german_number} {german_unit}"
            spans.append(Time(*ago, frozenset({"past"}), front=True))
            spans.append(Time(*ahead, frozenset({"future"}), front=True))
    return tuple(spans)
