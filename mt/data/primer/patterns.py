"""The patterns of sentences: each draws what it needs and returns a pair."""

from collections.abc import Callable
from dataclasses import replace

from mt.data.primer.clause import Adjunct, Clause, Slot
from mt.data.primer.drawing import Drawing, at
from mt.data.primer.lexicon import Tense, Time, load_lexicon
from mt.data.primer.noun_phrase import (
    A,
    BARE,
    HOW_MANY,
    NOT_A,
    POSSESSIVES,
    WHICH,
    Phrase,
    it,
    noun_phrase,
    pronoun,
    pronoun_for,
)
from mt.data.primer.sentence import Pair, condition_first, coordinated, question, statement, with_subordinate

_LEXICON = load_lexicon()
_WHO = Phrase("who", "who", "who", ("wer", "wen", "wem"), "er")
_WHAT = Phrase("what", "what", "what", ("was", "was", "was"), "er")
_THIS = Phrase("this", "this", "this", ("das",) * 3, "er")
_THESE = Phrase("this", "these", "these", ("das",) * 3, "wir")  # German keeps "das": "Das sind Äpfel."
_WHERE, _WHERE_TO = Adjunct("where", "wo", "where"), Adjunct("where", "wohin", "where")
_WHEN, _WHY = Time("when", "wann", frozenset()), Time("why", "warum", frozenset())

_WITH_OBJECT = tuple(verb for verb in _LEXICON.verbs if verb.objects and not verb.german_preposition)
_WITH_PLACE = tuple(verb for verb in _LEXICON.verbs if verb.locations or verb.destinations)
_WITH_PERSON = tuple(
    verb for verb in _WITH_OBJECT if not verb.receivers and _LEXICON.nouns["man"] in verb.objects
)
_EVENTS = tuple(verb for verb in _LEXICON.verbs if not verb.state)
_PERSONS = tuple(noun for noun in _LEXICON.nouns.values() if "person" in noun.classes)
_THINGS = tuple(
    noun for noun in _LEXICON.nouns.values() if noun.adjectives and not noun.classes & {"person", "animal"}
)
_NOUNS = tuple(noun for noun in _LEXICON.nouns.values() if noun.adjectives and noun.plural)
_TODAY = tuple(
    time
    for time in _LEXICON.times
    if time.english in ("today", "often", "always", "sometimes", "at the moment")
)
_PAST = tuple(time for time in _LEXICON.times if "past" in time.tenses and time.english != "today")
_NOW: tuple[Tense, ...] = ("present", "progressive", "modal")
_TO_YOU: tuple[Tense, ...] = (
    "present",
    "present",
    "present",
    "progressive",
    "progressive",
    "past",
    "modal",
    "perfect",
)


def plain(draw: Drawing) -> Pair:
    """The subject first."""
    return statement(draw.clause())


def time_first(draw: Drawing) -> Pair:
    """The time first, so that the German subject follows the verb."""
    while True:
        clause = draw.clause(_EVENTS)
        if clause.time and clause.time.front:
            return statement(clause, "time")


def description(draw: Drawing) -> Pair:
    """ "The soup is hot.", "The children are often tired.", "My mother is in the garden." """
    return statement(_description(draw))


def naming(draw: Drawing) -> Pair:
    """ "This is a red apple.", "These are not my shoes.", "Is this an old book?" """
    while True:
        noun, plural = draw.choose(_NOUNS), draw.chance(0.3)
        adjective = draw.choose(noun.adjectives) if draw.chance(0.8) else None
        subject = _THESE if plural else _THIS
        if noun.classes & {"own", "kin", "pet"} and draw.chance(0.3):
            phrase = noun_phrase(noun, draw.choose(POSSESSIVES), plural, adjective)
            negated = draw.chance(0.2)
            complement = Adjunct(phrase.english, phrase.in_case("nominative"), noun.english)
        else:
            negated = False
            if draw.chance(0.2) and not plural:
                phrase = noun_phrase(noun, NOT_A, plural, adjective)
                complement = Adjunct(f"not {phrase.english}", phrase.in_case("nominative"), noun.english)
            else:
                phrase = noun_phrase(noun, BARE if plural else A, plural, adjective)
                complement = Adjunct(phrase.english, phrase.in_case("nominative"), noun.english)
        clause = Clause(subject, _LEXICON.be, complement=complement, negated=negated)
        if draw.is_allowed(clause):
            asks = not negated and not phrase.denies and draw.chance(0.25)
            return question(clause) if asks else statement(clause)


def yes_or_no(draw: Drawing) -> Pair:
    """ "Does the boy often eat an apple?" """
    clause = _without_denial(lambda: _description(draw) if draw.chance(0.15) else draw.clause(negation=0))
    return question(clause)


def who(draw: Drawing) -> Pair:
    """ "Who is reading the book?" """
    return question(_without_denial(lambda: draw.clause(subject=_WHO, negation=0)), "subject")


def whom_or_what(draw: Drawing) -> Pair:
    """ "Who is the boy helping?", "What ...?", "Which book ...?", "How many books ...?" """
    return question(_asking_for_object(draw, None), "object")


def where(draw: Drawing) -> Pair:
    """ "Where does the man live?" and "Where is the man going?", which is "wo" and "wohin"."""
    return question(*_asking_for_place(draw, None))


def when(draw: Drawing) -> Pair:
    """ "When will the boy read the book?" """
    tenses: tuple[Tense, ...] = ("past", "future")
    clause = _without_denial(lambda: draw.clause(_EVENTS, tenses=tenses, negation=0))
    return question(replace(clause, time=_WHEN), "time")


def why(draw: Drawing) -> Pair:
    """ "Why did the boy not read the book?" """
    tenses: tuple[Tense, ...] = ("progressive", "past", "past")
    clause = _without_denial(lambda: draw.clause(_EVENTS, tenses=tenses, negation=0.4))
    return question(replace(clause, time=_WHY), "time")


def to_you(draw: Drawing) -> Pair:
    """Sentences to somebody called by name, which says whether German has "du" or "Sie"."""
    addressee, you = _addressee(draw)
    kind = draw.choose(("asks", "asks", "asks", "tells", "object", "what", "where"))
    if kind == "what":
        return question(_asking_for_object(draw, you), "object", addressee)
    if kind == "where":
        return question(*_asking_for_place(draw, you), addressee)
    if kind == "object":
        return statement(draw.clause(_WITH_PERSON, object=you), addressee=addressee)
    if kind == "tells":
        return statement(draw.clause(_EVENTS, subject=you, tenses=("modal",)), addressee=addressee)
    return question(draw.clause(subject=you, tenses=_TO_YOU, negation=0), addressee=addressee)


def because_of_an_event(draw: Drawing) -> Pair:
    """ "The man is happy because his son has found the key." """
    main = _state(draw, moods=True)
    return with_subordinate(main, "because", "weil", draw.clause())


def because_of_a_state(draw: Drawing) -> Pair:
    """ "The man is sleeping because he is tired." """
    main, reason = _same_person(draw, _NOW)
    return with_subordinate(main, "because", "weil", reason)


def although(draw: Drawing) -> Pair:
    """ "Although the man is ill, he is working." """
    main, state = _same_person(draw, _NOW)
    return condition_first("although", "obwohl", *_named_first(state, main))


def if_(draw: Drawing) -> Pair:
    """ "If the man is tired, he can sleep." """
    main, state = _same_person(draw, ("future", "modal"))
    return condition_first("if", "wenn", *_named_first(state, main))


def that(draw: Drawing) -> Pair:
    """ "She hopes that the boy will come." """
    saying = draw.clause(_LEXICON.saying, tenses=("present",), negation=0)
    main = replace(saying, time=None)
    content = _description(draw) if draw.chance(0.2) else draw.clause()
    return with_subordinate(main, "that", "dass", content)


def whether(draw: Drawing) -> Pair:
    """ "The man does not know whether ...", "Anna, do you know whether ...?" """
    content = _without_denial(lambda: draw.clause(negation=0))
    know = _LEXICON.saying[-1:]
    if draw.chance(0.4):
        addressee, you = _addressee(draw)
        main = replace(draw.clause(know, subject=you, tenses=("present",), negation=0), time=None)
        return with_subordinate(main, "whether", "ob", content, ask=True, addressee=addressee)
    knows = _without_denial(lambda: draw.clause(know, tenses=("present",), negation=0))
    return with_subordinate(replace(knows, time=None, negated=True), "whether", "ob", content)


def taken_up_again(draw: Drawing) -> Pair:
    """ "The apple is fresh and the boy is eating it.": the gender of "it" is that of the apple."""
    while True:
        verb = draw.choose(_WITH_OBJECT)
        noun = draw.choose(verb.objects)
        if noun.classes & {"person", "animal"} or not noun.adjectives:
            continue
        thing = draw.thing(noun)
        if thing.gender is None:
            continue
        first = Clause(thing, _LEXICON.be, complement=_predicate(draw, thing))
        second = _without_denial(
            lambda: draw.draft((verb,), object=it(thing.gender or "n"), tenses=_NOW, negation=0)
        )
        if draw.is_allowed(first) and draw.allowed(second.subject.lemma, verb.lemma, noun.english):
            words = ("but", "aber") if draw.chance(0.3) else ("and", "und")
            return coordinated(first, *words, second)


def _without_denial(make: Callable[[], Clause]) -> Clause:
    """A clause with no "no child" or "never" in it, which would make a strange question."""
    while True:
        clause = make()
        if not clause.subject.denies and not (clause.time and clause.time.english == "never"):
            return clause


def _predicate(draw: Drawing, thing: Phrase) -> Adjunct:
    assert thing.noun
    adjective = draw.choose(thing.noun.adjectives)
    return Adjunct(adjective.english, adjective.german, adjective.english)


def _description(draw: Drawing) -> Clause:
    while True:
        if draw.chance(0.4):
            thing = draw.thing(draw.choose(_THINGS))
            clause = Clause(thing, _LEXICON.be, complement=_predicate(draw, thing), negated=draw.chance(0.2))
        elif draw.chance(0.7):
            clause = _state(draw, moods=False)
        else:
            place, phrase = draw.place(tuple(_LEXICON.places.values())[:17], known=True)
            time = draw.choose(_TODAY) if draw.chance(0.4) else None
            clause = Clause(draw.subject(_PERSONS), _LEXICON.be, complement=at(place, phrase), time=time)
        if draw.is_allowed(clause):
            return clause


def _state(draw: Drawing, *, moods: bool) -> Clause:
    """Somebody is tired, or was; ``moods`` leaves only what an event can be the reason of, in the present."""
    while True:
        adjective = draw.choose(_LEXICON.moods if moods else _LEXICON.states)
        complement = Adjunct(adjective.english, adjective.german, adjective.english)
        subject = draw.subject(_PERSONS)
        tense: Tense = "past" if not moods and draw.chance(0.3) else "present"
        time = draw.choose(_PAST) if tense == "past" else None
        if tense == "present" and not moods and draw.chance(0.6):
            time = draw.choose(_TODAY)
        clause = Clause(subject, _LEXICON.be, tense, complement=complement, time=time)
        if draw.is_allowed(clause) and not (moods and subject.denies):
            return clause


def _same_person(draw: Drawing, tenses: tuple[Tense, ...]) -> tuple[Clause, Clause]:
    """An event and the state that somebody is in, whom the state's clause takes up by a pronoun."""
    while True:
        clause = _without_denial(lambda: draw.clause(_EVENTS, tenses=tenses, negation=0.1))
        person = pronoun_for(clause.subject)
        adjective = draw.choose(_LEXICON.states)
        if person is None or (clause.object and clause.object.pronoun):
            continue
        if clause.subject.noun and adjective not in clause.subject.noun.adjectives:
            continue
        state = Clause(
            person, _LEXICON.be, complement=Adjunct(adjective.english, adjective.german, adjective.english)
        )
        if draw.is_allowed(state):
            return clause, state


def _named_first(state: Clause, main: Clause) -> tuple[Clause, Clause]:
    """Name the person in the clause that comes first, and take them up by a pronoun in the second."""
    return replace(state, subject=main.subject), replace(main, subject=state.subject)


def _addressee(draw: Drawing) -> tuple[Pair, Phrase]:
    if draw.chance(0.7):
        name = draw.choose(_LEXICON.names["he"] + _LEXICON.names["she"])
        return (name, name), pronoun("familiar")
    surname = draw.choose(_LEXICON.surnames)
    title, german_title = draw.choose((("Mr", "Herr"), ("Mrs", "Frau")))
    return (f"{title} {surname}", f"{german_title} {surname}"), pronoun("formal")


def _asking_for_object(draw: Drawing, subject: Phrase | None) -> Clause:
    while True:
        clause = _without_denial(lambda: draw.draft(_WITH_OBJECT, subject=subject, negation=0))
        thing = clause.object
        if thing is None or (thing.noun and "animal" in thing.noun.classes and thing.noun.classes):
            continue
        if thing.noun and draw.chance(0.6):
            several = bool(thing.noun.plural) and draw.chance(0.4)
            asked = noun_phrase(thing.noun, HOW_MANY if several else WHICH, several)
        else:
            is_person = thing.noun is None or "person" in thing.noun.classes
            asked = _WHO if is_person else _WHAT
        clause = replace(clause, object=asked)
        if draw.is_allowed(clause):
            return clause


def _asking_for_place(draw: Drawing, subject: Phrase | None) -> tuple[Clause, Slot]:
    while True:
        clause = _without_denial(lambda: draw.draft(_EVENTS, subject=subject, negation=0))
        if clause.verb in _WITH_PLACE:
            clause = replace(clause, complement=_WHERE if clause.verb.locations else _WHERE_TO)
            slot: Slot = "complement"
        elif clause.circumstance and clause.circumstance.is_place:
            clause = replace(clause, circumstance=_WHERE)
            slot = "circumstance"
        else:
            continue
        if draw.is_allowed(clause):
            return clause, slot


# How often each is drawn, in a thousand sentences.
PATTERNS: tuple[tuple[Callable[[Drawing], Pair], int], ...] = (
    (plain, 300),
    (time_first, 130),
    (description, 60),
    (naming, 70),
    (yes_or_no, 60),
    (who, 25),
    (whom_or_what, 40),
    (where, 25),
    (when, 20),
    (why, 25),
    (to_you, 120),
    (because_of_an_event, 20),
    (because_of_a_state, 20),
    (although, 15),
    (if_, 20),
    (that, 20),
    (whether, 15),
    (taken_up_again, 35),
)
