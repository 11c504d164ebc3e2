"""The patterns of sentences: each draws its clauses and builds a sentence from them."""

from collections.abc import Callable
from dataclasses import replace

from mt.builtin.primer.clause import Clause
from mt.builtin.primer.drawing import Drawing
from mt.builtin.primer.lexicon import Tense, Time, load_lexicon
from mt.builtin.primer.noun_phrase import it
from mt.builtin.primer.sentence import (
    Sentence,
    coordinated,
    question,
    question_with_subordinate,
    statement,
    subordinate_first,
    with_subordinate,
)
from mt.builtin.primer.situations import (
    DONE_TO_THINGS,
    EVENTS,
    WHO,
    WITH_OBJECT,
    askable,
    asking_for_object,
    asking_for_place,
    denies,
    quality,
    quality_of,
    same_person,
    somebody_in_a_state,
    somebody_saying,
    somebody_spoken_to,
    something_described,
    something_named,
    subordinate_event,
    without_denial,
)

_LEXICON = load_lexicon()
_WHEN, _WHY = Time("when", "wann", frozenset()), Time("why", "warum", frozenset())
_BECAUSE, _ALTHOUGH, _IF = ("because", "weil"), ("although", "obwohl"), ("if", "wenn")
_THAT, _WHETHER = ("that", "dass"), ("whether", "ob")
[_KNOW] = [verb for verb in _LEXICON.saying if verb.lemma == "know"]

_WITH_PERSON = tuple(
    verb
    for verb in WITH_OBJECT
    if not verb.receivers and any(_LEXICON.nouns["man"] in nouns for nouns in verb.objects)
)

_PRESENT: tuple[Tense, ...] = ("present", "progressive")
_NOW: tuple[Tense, ...] = ("present", "progressive", "modal")
_LATER: tuple[Tense, ...] = ("future", "modal")
_COMPOUND: tuple[Tense, ...] = ("past", "past", "perfect", "future", "modal", "modal", "modal", "modal")
_TO_YOU: tuple[Tense, ...] = (*("present",) * 6, *("progressive",) * 3, "past", "modal", "perfect")


def plain(draw: Drawing) -> Sentence:
    """The subject first."""
    return statement(draw.clause())


def time_first(draw: Drawing) -> Sentence:
    """The time first, so that the German subject follows the verb."""
    while True:
        clause = draw.clause(EVENTS)
        if clause.time and clause.time.front:
            return statement(clause, "time")


def description(draw: Drawing) -> Sentence:
    """Say ``The soup is hot.``, ``The children are often tired.``, ``Anna, my mother is in the garden.``"""
    addressee = somebody_spoken_to(draw)[0] if draw.chance(0.3) else None
    return statement(something_described(draw), addressee=addressee)


def naming(draw: Drawing) -> Sentence:
    """Say ``This is a red apple.`` or ``Anna, these are not my shoes.``, or ask ``Is this an old book?``"""
    clause, negated = something_named(draw)
    addressee = somebody_spoken_to(draw)[0] if draw.chance(0.5) else None
    if not negated and draw.chance(0.2):
        return question(clause, addressee=addressee)
    return statement(clause, addressee=addressee)


def yes_or_no(draw: Drawing) -> Sentence:
    """Ask ``Can the boy open the door?``

    What would begin with a German full verb is asked of somebody ("Anna, schläft der Hund?"), so that
    capitals do not double the vocabulary.
    """
    if draw.chance(0.25):
        return question(askable(lambda: something_described(draw)))
    if draw.chance(0.4):
        clause = askable(lambda: draw.clause(negation=0))
        return question(clause, addressee=somebody_spoken_to(draw)[0])
    while True:
        clause = askable(lambda: draw.clause(EVENTS, tenses=_COMPOUND, negation=0))
        if clause.tense not in _PRESENT:  # which some verbs fall back on
            return question(clause)


def who(draw: Drawing) -> Sentence:
    """Ask ``Who is reading the book?``"""
    return question(without_denial(lambda: draw.clause(subject=WHO, negation=0)), "subject")


def whom_or_what(draw: Drawing) -> Sentence:
    """Ask ``Who is the boy helping?``, ``What ...?``, ``Which book ...?``, ``How many books ...?``"""
    return question(asking_for_object(draw), "object")


def where(draw: Drawing) -> Sentence:
    """Ask ``Where does the man live?`` ("wo") or ``Where is the man going?`` ("wohin")."""
    return question(*asking_for_place(draw))


def when(draw: Drawing) -> Sentence:
    """Ask ``When will the boy read the book?``"""
    tenses: tuple[Tense, ...] = ("past", "future")
    clause = askable(lambda: draw.clause(EVENTS, tenses=tenses, negation=0))
    return question(replace(clause, time=_WHEN), "time")


def why(draw: Drawing) -> Sentence:
    """Ask ``Why did the boy not read the book?``"""
    tenses: tuple[Tense, ...] = ("progressive", "past", "past")
    clause = askable(lambda: draw.clause(EVENTS, tenses=tenses, negation=0.4))
    return question(replace(clause, time=_WHY), "time")


def to_you(draw: Drawing) -> Sentence:
    """Address somebody by name, which decides between German "du" and "Sie"."""
    addressee, you = somebody_spoken_to(draw)
    kind = draw.choose(("asks", "asks", "asks", "tells", "object", "what", "where"))
    if kind == "what":
        return question(asking_for_object(draw, you, _TO_YOU), "object", addressee)
    if kind == "where":
        return question(*asking_for_place(draw, you, _TO_YOU), addressee)
    if kind == "object":
        return statement(draw.clause(_WITH_PERSON, object=you), addressee=addressee)
    if kind == "tells":
        return statement(draw.clause(EVENTS, subject=you, tenses=("modal",)), addressee=addressee)
    return question(
        without_denial(lambda: draw.clause(subject=you, tenses=_TO_YOU, negation=0)), addressee=addressee
    )


def because_of_an_event(draw: Drawing) -> Sentence:
    """Say ``The man is happy because his son has already found the key.``"""
    return with_subordinate(somebody_in_a_state(draw, moods=True), _BECAUSE, subordinate_event(draw))


def because_of_a_state(draw: Drawing) -> Sentence:
    """Say ``The man is sleeping because he is tired.``"""
    main, reason = same_person(draw, _LEXICON.leads_to, _NOW, state_first=False)
    return with_subordinate(main, _BECAUSE, reason)


def because_of_a_thing(draw: Drawing) -> Sentence:
    """Say ``The man is washing the shirt because it is dirty.``: "it" has the gender of "Hemd"."""
    while True:
        adjective, verbs = draw.choose(_LEXICON.because_of)
        main = draw.clause(verbs, negation=0)
        if denies(main):
            continue
        thing = main.object
        if not thing or not thing.noun or not thing.gender or not thing.known or thing.described:
            continue
        noun = thing.noun
        if noun.classes & {"person", "animal"} or adjective not in noun.adjectives:
            continue
        tense: Tense = "past" if main.tense in ("past", "perfect") else "present"
        reason = Clause(it(noun), _LEXICON.be, tense, complement=quality(adjective))
        if draw.is_allowed(reason):
            return with_subordinate(main, _BECAUSE, reason)


def although(draw: Drawing) -> Sentence:
    """Say ``Although the man is ill, he is working.``"""
    main, state = same_person(draw, _LEXICON.in_spite, _NOW, state_first=True)
    return subordinate_first(_ALTHOUGH, state, main)


def if_(draw: Drawing) -> Sentence:
    """Say ``If the man is tired, he can sleep.``"""
    main, state = same_person(draw, _LEXICON.leads_to, _LATER, state_first=True)
    return subordinate_first(_IF, state, main)


def that(draw: Drawing) -> Sentence:
    """Say ``She hopes that the boy will come.``"""
    main = without_denial(lambda: somebody_saying(draw, _LEXICON.saying))
    if draw.chance(0.25):
        content = something_described(draw) if draw.chance(0.5) else something_named(draw)[0]
    else:
        content = subordinate_event(draw)
    return with_subordinate(main, _THAT, content)


def whether(draw: Drawing) -> Sentence:
    """Say ``The man does not know whether ...``, or ask ``Anna, do you know whether ...?``"""
    content = askable(lambda: subordinate_event(draw, negation=0))
    if draw.chance(0.4):
        addressee, you = somebody_spoken_to(draw)
        return question_with_subordinate(Clause(you, _KNOW), _WHETHER, content, addressee)
    main = without_denial(lambda: somebody_saying(draw, (_KNOW,)))
    return with_subordinate(replace(main, negated=True), _WHETHER, content)


def taken_up_again(draw: Drawing) -> Sentence:
    """Say ``The apple is fresh and the boy is eating it.``: German "it" has the gender of the apple."""
    while True:
        verb = draw.choose(DONE_TO_THINGS)
        noun = draw.choose(draw.choose(verb.objects))
        if noun.classes & {"person", "animal"} or not noun.adjectives:
            continue
        thing = draw.thing(noun)
        if thing.gender is None:
            continue
        first = Clause(thing, _LEXICON.be, complement=quality_of(draw, noun))
        second = draw.draft((verb,), object=it(noun), tenses=_NOW, negation=0)
        if denies(second) or (verb.once and second.tense == "present"):
            continue
        if draw.is_allowed(first) and draw.is_allowed(second):
            return coordinated(first, ("but", "aber") if draw.chance(0.3) else ("and", "und"), second)


# How often each pattern is drawn per thousand sentences.
PATTERNS: tuple[tuple[Callable[[Drawing], Sentence], int], ...] = (
    (plain, 200),
    (time_first, 80),
    (description, 85),
    (naming, 120),
    (yes_or_no, 70),
    (who, 20),
    (whom_or_what, 40),
    (where, 20),
    (when, 20),
    (why, 20),
    (to_you, 150),
    (because_of_an_event, 30),
    (because_of_a_state, 15),
    (because_of_a_thing, 20),
    (although, 15),
    (if_, 20),
    (that, 30),
    (whether, 20),
    (taken_up_again, 35),
)
