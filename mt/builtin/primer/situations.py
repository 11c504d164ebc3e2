"""Clauses for a purpose: descriptions, questions, what one person does and how they feel."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mt.builtin.primer.clause import Adjunct, Clause, Slot
from mt.builtin.primer.drawing import TENSES, Drawing, at
from mt.builtin.primer.lexicon import Adjective, Doings, Noun, Tense, Verb, load_lexicon
from mt.builtin.primer.noun_phrase import (
    BARE,
    HOW_MANY,
    NOT_A,
    POSSESSIVES,
    WHICH,
    A,
    Phrase,
    noun_phrase,
    pronoun,
    pronoun_for,
)
from mt.builtin.primer.sentence import Words

_LEXICON = load_lexicon()
WHO = Phrase("who", "who", "who", ("wer", "wen", "wem"), "er")
_WHAT = Phrase("what", "what", "what", ("was", "was", "was"), "er")
_THIS = Phrase("this", "this", "this", ("das", "das", "dem"), "er")
_THESE = Phrase("this", "these", "these", ("das", "das", "dem"), "wir")  # "das" even so: "Das sind Äpfel."
_WHERE, _WHERE_TO = Adjunct("where", "wo", "where"), Adjunct("where", "wohin", "where")

EVENTS = tuple(verb for verb in _LEXICON.verbs if not verb.state)
WITH_OBJECT = tuple(verb for verb in _LEXICON.verbs if verb.objects and not verb.german_preposition)
# English does not ask "Where is he coming?"
_WITH_PLACE = tuple(
    verb for verb in _LEXICON.verbs if (verb.locations or verb.destinations) and verb.lemma != "come"
)
# Few verbs have a dative object, and "welchem" should be as frequent as other words.
_ASKED_FOR = WITH_OBJECT + 4 * tuple(verb for verb in WITH_OBJECT if verb.object_case == "dative")
# What somebody does on purpose with something that is there already.
DONE_TO_THINGS = tuple(
    verb for verb in WITH_OBJECT if not verb.no_ing and verb.lemma not in ("bake", "write")
)
# Prefix and verb are one word in a subordinate clause ("anruft"), which must be frequent enough to learn.
_SUBORDINATE = _LEXICON.verbs + 3 * tuple(verb for verb in _LEXICON.verbs if verb.prefix)

_PERSONS = tuple(noun for noun in _LEXICON.nouns.values() if "person" in noun.classes)
_BUILDINGS = tuple(place for place in _LEXICON.places.values() if "furniture" not in place.noun.classes)


def _described_by(adjective: Adjective) -> tuple[Noun, ...]:
    return tuple(noun for noun in _LEXICON.nouns.values() if adjective in noun.adjectives)


# For each adjective the things that it is said of; and what can be counted, by gender: masculine and neuter
# twice, since "ein alter" and "ein altes" are seen in few other places.
_SAID_OF_THINGS = tuple(
    (adjective, things)
    for adjective in _LEXICON.adjectives.values()
    if (things := tuple(noun for noun in _described_by(adjective) if not noun.classes & {"person", "animal"}))
)
_COUNTED_BY_GENDER = tuple(
    (adjective, groups)
    for adjective in _LEXICON.adjectives.values()
    if (
        groups := tuple(
            nouns
            for gender in "mmnnf"
            if (nouns := tuple(n for n in _described_by(adjective) if n.plural and n.gender == gender))
        )
    )
)
_STATE_TIMES = tuple(
    time for time in _LEXICON.times if time.english in ("today", "often", "always", "at the moment")
)
_PAST_TIMES = tuple(time for time in _LEXICON.times if "past" in time.tenses and time.english != "today")


def denies(clause: Clause) -> bool:
    """Whether the clause has "no child" or "never", which would make a strange question."""
    return clause.subject.denies or (clause.time is not None and clause.time.english == "never")


def askable(make: Callable[[], Clause]) -> Clause:
    """Make clauses until one can be asked about: people know about themselves."""
    while True:
        clause = without_denial(make)
        if clause.subject.agreement != "ich":
            return clause


def without_denial(make: Callable[[], Clause]) -> Clause:
    """Make clauses until one has neither "no child" nor "never"."""
    while True:
        clause = make()
        if not denies(clause):
            return clause


def subordinate_event(draw: Drawing, negation: float = 0.16) -> Clause:
    """An event for a subordinate clause."""
    while True:
        clause = draw.clause(_SUBORDINATE, negation=negation)
        joined = clause.verb.prefix and clause.tense in ("present", "progressive")
        # "anrufe" would be one rare word for each such verb.
        if not (joined and clause.subject.agreement == "ich"):
            return clause


def somebody_saying(draw: Drawing, verbs: Sequence[Verb]) -> Clause:
    """The main clause before "that" and "whether": it needs no time."""
    return replace(draw.clause(verbs, tenses=("present",), negation=0), time=None)


def quality_of(draw: Drawing, noun: Noun) -> Adjunct:
    """An adjective that can be said of ``noun``."""
    return quality(draw.choose(noun.adjectives))


def quality(adjective: Adjective) -> Adjunct:
    """An adjective as a predicate, which has no ending in German."""
    return Adjunct(adjective.english, adjective.german, adjective.english)


def something_named(draw: Drawing) -> tuple[Clause, bool]:
    """The complement of "this is", and whether the sentence is negated."""
    while True:
        adjective, groups = draw.choose(_COUNTED_BY_GENDER)
        noun = draw.choose(draw.choose(groups))
        plural = draw.chance(0.25)
        owned = "kin" in noun.classes or (bool(noun.classes & {"own", "pet"}) and draw.chance(0.25))
        negated = draw.chance(0.15) and (owned or not plural)
        determiner = draw.choose(POSSESSIVES) if owned else BARE if plural else NOT_A if negated else A
        phrase = noun_phrase(noun, determiner, plural, adjective)
        english = f"not {phrase.english}" if negated else phrase.english
        german = phrase.in_case("nominative")
        complement = Adjunct(english, f"nicht {german}" if negated and owned else german, noun.english)
        clause = Clause(_THESE if plural else _THIS, _LEXICON.be, complement=complement)
        if draw.is_allowed(clause):
            return clause, negated


def something_described(draw: Drawing) -> Clause:
    """A clause that describes a thing or person, or says where it is."""
    while True:
        kind = draw.choose(("thing", "thing", "state", "state", "place"))
        if kind == "state":
            clause = somebody_in_a_state(draw, moods=False)
        elif kind == "thing":
            adjective, nouns = draw.choose(_SAID_OF_THINGS)
            thing, complement = draw.thing(draw.choose(nouns)), quality(adjective)
            past = adjective in _LEXICON.passing and draw.chance(0.5)
            clause = Clause(
                thing,
                _LEXICON.be,
                "past" if past else "present",
                complement=complement,
                time=draw.choose(_PAST_TIMES) if past else None,
                negated=draw.chance(0.2),
            )
        else:
            place, phrase = draw.place(_BUILDINGS, known=True)
            time = draw.choose(_STATE_TIMES) if draw.chance(0.4) else None
            clause = Clause(draw.subject(_PERSONS), _LEXICON.be, complement=at(place, phrase), time=time)
        if draw.is_allowed(clause):
            return clause


def somebody_in_a_state(draw: Drawing, *, moods: bool) -> Clause:
    """A clause such as "he is tired"; ``moods`` keeps only moods that an event can cause, in the present."""
    while True:
        adjective = draw.choose(_LEXICON.moods if moods else _LEXICON.states)
        subject = draw.subject(_PERSONS)
        tense: Tense = "past" if not moods and draw.chance(0.4) else "present"
        time = None
        if not moods and (tense == "past" or draw.chance(0.6)):
            time = draw.choose(_PAST_TIMES if tense == "past" else _STATE_TIMES)
        clause = Clause(subject, _LEXICON.be, tense, complement=quality(adjective), time=time)
        fits = not subject.noun or (adjective in subject.noun.adjectives and not subject.described)
        if draw.is_allowed(clause) and fits and not (moods and subject.denies):
            return clause


def same_person(
    draw: Drawing, doings: Doings, tenses: Sequence[Tense], *, state_first: bool
) -> tuple[Clause, Clause]:
    """What somebody does, and the state they are in; the clause that comes second has a pronoun for them."""
    while True:
        adjective, verbs = draw.choose(doings)
        main = draw.draft(verbs, tenses=tenses, negation=0)
        person, again = main.subject, pronoun_for(main.subject)
        # "If he is tired, he will sleep in three weeks"?
        if denies(main) or again is None or main.time in _LEXICON.spans:
            continue
        if person.described or (person.noun and "person" not in person.noun.classes):
            continue
        state = Clause(person if state_first else again, _LEXICON.be, complement=quality(adjective))
        main = replace(main, subject=again) if state_first else main
        if draw.is_allowed(main) and draw.is_allowed(state):
            return main, state


def somebody_spoken_to(draw: Drawing) -> tuple[Words, Phrase]:
    """A name to address, and the "you" that agrees with it."""
    if draw.chance(0.75):
        name = draw.choose(_LEXICON.names["he"] + _LEXICON.names["she"])
        return (name, name), pronoun("familiar")
    surname = draw.choose(_LEXICON.surnames)
    title, german_title = draw.choose((("Mr", "Herr"), ("Mrs", "Frau")))
    return (f"{title} {surname}", f"{german_title} {surname}"), pronoun("formal")


def asking_for_object(
    draw: Drawing, subject: Phrase | None = None, tenses: Sequence[Tense] = TENSES
) -> Clause:
    """A clause with "who", "what", "which" or "how many" for its object."""
    while True:
        clause = askable(lambda: draw.draft(_ASKED_FOR, subject=subject, tenses=tenses, negation=0))
        thing = clause.object
        if thing is None:
            continue
        if thing.noun and draw.chance(0.6):
            several = bool(thing.noun.plural) and draw.chance(0.4)
            asked = noun_phrase(thing.noun, HOW_MANY if several else WHICH, several)
        elif thing.noun and "animal" in thing.noun.classes:
            continue
        else:
            asked = _WHAT if thing.noun and "person" not in thing.noun.classes else WHO
        clause = replace(clause, object=asked)
        if draw.is_allowed(clause):
            return clause


def asking_for_place(
    draw: Drawing, subject: Phrase | None = None, tenses: Sequence[Tense] = TENSES
) -> tuple[Clause, Slot]:
    """A clause with "where", and the constituent that it asks for."""
    while True:
        clause = askable(lambda: draw.draft(EVENTS, subject=subject, tenses=tenses, negation=0))
        slot: Slot = "complement"
        if clause.verb in _WITH_PLACE:
            clause = replace(clause, complement=_WHERE if clause.verb.locations else _WHERE_TO)
        elif clause.circumstance and clause.circumstance.is_place:
            clause, slot = replace(clause, circumstance=_WHERE), "circumstance"
        else:
            continue
        if draw.is_allowed(clause):
            return clause, slot
