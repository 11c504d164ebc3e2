"""Drawing clauses at random: words that make sense together, in combinations that a split may use."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from mt.builtin.primer.clause import Adjunct, Clause
from mt.builtin.primer.lexicon import Case, Modal, Noun, Place, Tense, Time, Verb, load_lexicon
from mt.builtin.primer.noun_phrase import (
    BARE,
    MANY,
    NO,
    NOT_A,
    NOT_BARE,
    NUMBERS,
    POSSESSIVES,
    SOME,
    THE,
    THIS,
    A,
    Determiner,
    Phrase,
    name,
    noun_phrase,
    prepositional,
    pronoun,
    title_and_surname,
)

T = TypeVar("T")
Allowed = Callable[[str, str, str], bool]
# A determiner, and whether its noun is plural; drawn uniformly, so frequent ones are repeated.
Choices = tuple[tuple[Determiner, bool], ...]

_LEXICON = load_lexicon()
_PRONOUNS = tuple(pronoun(key) for key in _LEXICON.pronouns)
# The verb form for "ich" is used with no other subject, so "ich" must be frequent enough to learn it.
_SUBJECT_PRONOUNS = _PRONOUNS + 3 * (pronoun("I"),)
_FIRST_PERSON = frozenset({"I", "we"})
_NAMES = (
    *(name(first, "m") for first in _LEXICON.names["he"]),
    *(name(first, "f") for first in _LEXICON.names["she"]),
    *(title_and_surname(surname, "m") for surname in _LEXICON.surnames),
    *(title_and_surname(surname, "f") for surname in _LEXICON.surnames),
)
_PERSONS = tuple(noun for noun in _LEXICON.nouns.values() if "person" in noun.classes)
_COMPANIONS = (*_PERSONS, _LEXICON.nouns["dog"])
_UNIQUE = frozenset({"kin", "royal"})
_OWNED = frozenset({"own", "kin", "pet"})
_MODALS = tuple(_LEXICON.modals.values())
_TIMES = {
    key: tuple(time for time in _LEXICON.times if key in time.tenses)
    for key in ("habit", "progressive", "modal", "future", "past", "perfect")
}
_SPANS = {key: tuple(span for span in _LEXICON.spans if key in span.tenses) for key in ("past", "future")}
# For what is not done on a schedule: "I often forget my key", but hardly "every evening".
_TIMES["seldom"] = tuple(time for time in _TIMES["habit"] if time.middle)
_ONE, _SEVERAL = False, True
_NUMBERED: Choices = tuple((number, _SEVERAL) for number in NUMBERS)
_SUBJECT: Choices = (
    *[(THE, _ONE)] * 20,
    *[(THE, _SEVERAL)] * 12,
    *[(A, _ONE)] * 9,
    *[(THIS, _ONE)] * 4,
    *[(THIS, _SEVERAL)] * 4,
    *[(NO, _ONE)] * 2,
    *[(MANY, _SEVERAL)] * 2,
    *[(SOME, _SEVERAL)] * 2,
    *_NUMBERED,
)
_NEW: Choices = (
    *[(A, _ONE)] * 22,
    *[(BARE, _SEVERAL)] * 12,
    *[(MANY, _SEVERAL)] * 4,
    *[(SOME, _SEVERAL)] * 6,
    *_NUMBERED,
)
_KNOWN: Choices = (
    *[(THE, _ONE)] * 8,
    *[(THE, _SEVERAL)] * 5,
    *[(THIS, _ONE)] * 2,
    *[(THIS, _SEVERAL)] * 2,
)
# "my brother", "the king": hardly "this brother" or "seven kings".
_KIN: Choices = (*[(THE, _ONE)] * 3, *[(THE, _SEVERAL)] * 2)
_A: Choices = ((A, _ONE),)
_THE: Choices = ((THE, _ONE),)
_DENIED: Choices = (*[(NOT_A, _ONE)] * 2, (NOT_BARE, _SEVERAL))
_SUBSTANCE_NEW: Choices = ((BARE, _ONE),)
_SUBSTANCE_KNOWN: Choices = (*[(THE, _ONE)] * 4, (THIS, _ONE))
_SUBSTANCE_DENIED: Choices = ((NOT_BARE, _ONE),)

_PRESENT: tuple[Tense, ...] = ("present", "progressive")
TENSES: tuple[Tense, ...] = (
    *("present",) * 7,
    *("progressive",) * 5,
    *("future",) * 2,
    *("past",) * 5,
    *("perfect",) * 4,
    *("modal",) * 4,
)


class Drawing:
    """Draws clauses from one random generator.

    Args:
        random: The only source of randomness.
        allowed: Returns whether (subject, verb, object) may be used.
    """

    def __init__(self, random: Random, allowed: Allowed) -> None:
        self._random = random.random
        self._allowed = allowed

    def chance(self, probability: float) -> bool:
        """True with ``probability``."""
        return self._random() < probability

    def choose(self, things: Sequence[T]) -> T:
        """One of ``things``, uniformly."""
        return things[int(self._random() * len(things))]

    def clause(
        self,
        verbs: Sequence[Verb] = _LEXICON.verbs,
        *,
        subject: Phrase | None = None,
        object: Phrase | None = None,
        tenses: Sequence[Tense] = TENSES,
        negation: float = 0.2,
    ) -> Clause:
        """Draw until the combination of subject, verb and object is allowed."""
        while True:
            clause = self.draft(verbs, subject=subject, object=object, tenses=tenses, negation=negation)
            if self.is_allowed(clause):
                return clause

    def is_allowed(self, clause: Clause) -> bool:
        """Whether the split may use the clause's combination of subject, verb and object."""
        combination = triple(clause)
        return combination is None or self._allowed(*combination)

    def draft(
        self,
        verbs: Sequence[Verb],
        *,
        subject: Phrase | None = None,
        object: Phrase | None = None,
        tenses: Sequence[Tense] = TENSES,
        negation: float = 0.2,
    ) -> Clause:
        """Draw a clause whose combination may be one of another split.

        Args:
            verbs: The verbs to choose from.
            subject: The subject; None draws one.
            object: The object, which all of the verbs must accept; None draws one.
            tenses: The tenses to choose from; a verb that has no such tense is put into the simple present.
            negation: The probability that a clause is negated if it may be.
        """
        verb = self.choose(verbs)
        subject = subject or self.subject(verb.subjects)
        if subject.agreement == "ich" and tenses is TENSES and self.chance(0.9):
            tenses = _PRESENT
        tense = _possible(verb, self.choose(tenses))
        modal = self.choose(_MODALS) if tense == "modal" else None
        time = self.time(verb, tense)
        negated = self.chance(negation) and _negatable(subject, time, modal)
        if tense == "perfect":
            time = _TIMES["perfect"][1 if negated else 0]
        # Nobody loses the same key every day; and "has not read a book yet" has no simple German order.
        wants_new = (verb.owns or (verb.once and tense == "present")) and not negated
        wants_known = negated and tense == "perfect"
        taken = [subject.lemma]
        object = object or self._object(verb, taken, negated, wants_new, wants_known)
        receiver = None
        if verb.receivers and object:
            taken.append(object.lemma)
            receiver = self.person(verb.receivers, taken, known=object.known or negated)
        complement = None
        if verb.german_preposition and object:
            complement = _with_preposition(verb, object)
            object = None
        elif verb.locations or verb.destinations:
            complement = self._complement(verb, negated)
        circumstance = None
        if tense != "perfect" and self.chance(0.3):
            circumstance = self._circumstance(verb, taken, object, negated)
        return Clause(subject, verb, tense, modal, object, receiver, complement, circumstance, time, negated)

    def subject(self, nouns: Sequence[Noun]) -> Phrase:
        """A person as the subject: a pronoun, a name, or one of ``nouns``."""
        if self.chance(0.3):
            return self.choose(_SUBJECT_PRONOUNS)
        if self.chance(0.15):
            return self.choose(_NAMES)
        return self._noun_phrase(self.choose(nouns), _SUBJECT, adjectives=0.3)

    def person(self, nouns: Sequence[Noun], taken: Sequence[str], known: bool) -> Phrase:
        """A person who is not one of ``taken``: a pronoun, a name, or one of ``nouns``."""
        while True:
            if self.chance(0.2):
                phrase = self.choose(_PRONOUNS)
            elif self.chance(0.15):
                phrase = self.choose(_NAMES)
            else:
                phrase = self._noun_phrase(
                    self.choose(nouns), _KNOWN if known else _NEW + _KNOWN, adjectives=0.2
                )
            both_first = phrase.lemma in _FIRST_PERSON and not _FIRST_PERSON.isdisjoint(taken)
            if phrase.lemma not in taken and not both_first:
                return phrase

    def time(self, verb: Verb, tense: Tense) -> Time | None:
        """A time expression that determines the tense; None where English needs none."""
        if verb.state:
            return self.choose(_TIMES["past"]) if tense == "past" else None
        if tense == "present":
            habit = _TIMES["seldom" if verb.no_ing else "habit"]
            return self.choose(habit) if verb.once or self.chance(0.75) else None
        if tense in ("past", "future") and self.chance(0.25):
            return self.choose(_SPANS[tense])
        if tense == "past" or self.chance({"progressive": 0.6, "modal": 0.5}.get(tense, 0.85)):
            return self.choose(_TIMES[tense])
        return None

    def place(self, places: Sequence[Place], known: bool) -> tuple[Place, Phrase]:
        """One of ``places``, and a phrase for it in the singular."""
        place = self.choose(places)
        choices: Choices = ((THE, _ONE),) * 8 + ((THIS, _ONE),) + (() if known else ((A, _ONE),) * 2)
        return place, self._noun_phrase(place.noun, choices, adjectives=0.15, owned=0.25)

    def thing(self, noun: Noun) -> Phrase:
        """A definite noun phrase: "the apple", "these apples", "my apples"."""
        choices = _KNOWN if noun.plural else _SUBSTANCE_KNOWN
        return self._noun_phrase(noun, choices, adjectives=0.0, owned=0.25)

    def _noun_phrase(self, noun: Noun, choices: Choices, adjectives: float, owned: float = 0.4) -> Phrase:
        if not noun.classes.isdisjoint(_UNIQUE) and choices is not _NEW and choices is not _DENIED:
            choices, owned = _KIN, 0.7
        determiner, plural = self.choose(choices)
        if determiner is THE and noun.classes & _OWNED and self.chance(owned):
            determiner = self.choose(POSSESSIVES)
            plural = plural and "only" not in noun.classes
        adjective = self.choose(noun.adjectives) if noun.adjectives and self.chance(adjectives) else None
        return noun_phrase(noun, determiner, plural, adjective)

    def _object(
        self, verb: Verb, taken: list[str], negated: bool, wants_new: bool, wants_known: bool
    ) -> Phrase | None:
        if not verb.objects:
            return None
        share_denied = 0.9 if verb.object_case == "dative" else 0.4
        denied = negated and not wants_known and not verb.german_preposition
        denied = denied and (verb.owns or self.chance(share_denied))
        while True:
            noun = self.choose(self.choose(verb.objects))
            unique = not verb.owns and not noun.classes.isdisjoint(_UNIQUE)
            if noun.english in taken or (denied and unique):
                continue
            if denied:
                return self._noun_phrase(noun, _DENIED if noun.plural else _SUBSTANCE_DENIED, adjectives=0.42)
            if "person" in noun.classes and not wants_new and self.chance(0.35):
                return self.person(_PERSONS, taken, known=True)
            new = wants_new or not (wants_known or negated or self.chance(0.55))
            choices = _choices(verb, noun, new and not unique)
            return self._noun_phrase(noun, choices, adjectives=0.42)

    def _complement(self, verb: Verb, negated: bool) -> Adjunct:
        place, phrase = self.place(verb.locations or verb.destinations, known=negated)
        return at(place, phrase) if verb.locations else _towards(place, phrase)

    def _circumstance(
        self, verb: Verb, taken: Sequence[str], object: Phrase | None, negated: bool
    ) -> Adjunct | None:
        kinds = [
            kind
            for kind, possible in (
                ("where", verb.where),
                ("company", verb.company),
                ("beneficiary", verb.beneficiary),
                ("instrument", verb.instruments),
            )
            if possible
        ]
        if not kinds:
            return None
        kind = self.choose(kinds)
        if kind == "where":
            place, phrase = self.place(verb.where, known=negated)
            return None if object and object.lemma == phrase.lemma else at(place, phrase)
        if kind == "instrument":
            adjective, noun = self.choose(verb.instruments)
            return _adjunct("with", "mit", noun_phrase(noun, BARE, False, adjective), "dative")
        taken = [*taken, object.lemma] if object else taken
        if kind == "beneficiary":
            return _adjunct("for", "für", self.person(_PERSONS, taken, known=True), "accusative")
        somebody = self.person(_COMPANIONS, taken, known=True)
        if not negated and self.chance(0.2):
            return _adjunct("without", "ohne", somebody, "accusative")
        return _adjunct("with", "mit", somebody, "dative")


def _choices(verb: Verb, noun: Noun, new: bool) -> Choices:
    if not noun.plural:
        return _SUBSTANCE_NEW if new else _SUBSTANCE_KNOWN
    if verb.singular:
        return _A if new else _THE
    if new:
        return _A if verb.single else _NEW
    return _KNOWN


def triple(clause: Clause) -> tuple[str, str, str] | None:
    """The combination that decides the split: subject, verb, and object or other complement.

    None for a pronoun and a verb alone ("I laugh"), which every split may use, because no other clause
    has the form "lache".
    """
    completion = clause.object or clause.complement
    if completion is None and clause.subject.pronoun:
        return None
    return clause.subject.lemma, clause.verb.lemma, completion.lemma if completion else ""


def _possible(verb: Verb, tense: Tense) -> Tense:
    if verb.state:
        return "past" if tense == "past" and verb.preterite else "present"
    if verb.unplanned and tense in ("modal", "future"):
        return "past"
    return "present" if verb.no_ing and tense == "progressive" else tense


def _negatable(subject: Phrase, time: Time | None, modal: Modal | None) -> bool:
    if subject.denies or (time and not time.negatable and "perfect" not in time.tenses):
        return False
    return modal is None or modal.english != "would like"


def _adjunct(english: str, german: str, phrase: Phrase, case: Case) -> Adjunct:
    return Adjunct(f"{english} {phrase.english_object}", prepositional(german, phrase, case), phrase.lemma)


def at(place: Place, phrase: Phrase) -> Adjunct:
    """A phrase for a place: "at the station", "am Bahnhof"."""
    return replace(_adjunct(*place.at, phrase, "dative"), is_place=True)


def _towards(place: Place, phrase: Phrase) -> Adjunct:
    return _adjunct(*place.to, phrase, place.to_case)


def _with_preposition(verb: Verb, phrase: Phrase) -> Adjunct:
    return _adjunct(verb.preposition, verb.german_preposition, phrase, verb.object_case)
