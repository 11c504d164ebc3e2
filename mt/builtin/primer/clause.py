"""A clause, and German word order.

Every German clause is built around two brackets, which its verb fills:

    ====================  =======  =====================================  ==========
    front                 left     middle                                 right
    ====================  =======  =====================================  ==========
    Der Junge             macht    heute das Fenster                      auf
    Heute                 muss     der Junge das Fenster                  aufmachen
    Warum                 hat      der Junge das Fenster nicht            aufgemacht
    (yes/no question)     Macht    der Junge heute das Fenster            auf
    weil                           der Junge heute das Fenster            aufmacht
    ====================  =======  =====================================  ==========

*Verb second*: in a statement exactly one constituent precedes the finite verb; if it is not the
subject, the subject follows the verb. *Verb first*: a yes/no question leaves the front empty. *Verb last*: in
a subordinate clause the conjunction takes the left bracket, and the finite verb joins the others on the
right. The middle is the same in all three.
"""

from dataclasses import dataclass
from typing import Literal

from mt.builtin.primer.lexicon import AGREEMENTS, Modal, Tense, Time, Verb, load_lexicon
from mt.builtin.primer.noun_phrase import Phrase

Slot = Literal["subject", "object", "time", "complement", "circumstance"]
_AUXILIARIES = load_lexicon().auxiliaries


@dataclass(frozen=True)
class Adjunct:
    """A phrase that is not inflected further, "in the park" and "im Park"; ``lemma`` is its noun."""

    english: str
    german: str
    lemma: str = ""
    is_place: bool = False


@dataclass(frozen=True)
class Clause:
    """The content of a clause, independent of the language.

    Attributes:
        object: In the accusative, or in the dative where the verb requires it.
        receiver: The dative beside an accusative object ("gives *the child* a book").
        complement: What else the verb requires: a predicate, a destination, an object with a preposition.
        circumstance: With whom, for whom, or where it happens.
        negated: Whether it is negated by "not"; German has "kein" instead where the object ``denies``.
    """

    subject: Phrase
    verb: Verb
    tense: Tense = "present"
    modal: Modal | None = None
    object: Phrase | None = None
    receiver: Phrase | None = None
    complement: Adjunct | None = None
    circumstance: Adjunct | None = None
    time: Time | None = None
    negated: bool = False


def main_clause(clause: Clause, front: Slot | None = "subject") -> str:
    """German with the verb second after ``front``, or first where ``front`` is None."""
    finite, right = _brackets(clause)
    words = [_constituent(clause, front)] if front else []
    return _join([*words, finite, *_middle(clause, front), right])


def clause_after(clause: Clause) -> str:
    """German after a subordinate clause, which is itself the front: the verb comes at once."""
    return main_clause(clause, front=None)


def subordinate_clause(conjunction: str, clause: Clause) -> str:
    """German with the verb last: "weil der Junge das Fenster aufgemacht hat"."""
    finite, right = _brackets(clause)
    middle = _join([conjunction, *_middle(clause, None)])
    if right and right == clause.verb.prefix:
        return f"{middle} {right}{finite}"
    return _join([middle, right, finite])


def _brackets(clause: Clause) -> tuple[str, str]:
    """The finite verb, and the part of the verb in the right bracket: prefix, participle or infinitive."""
    verb = clause.verb
    form = AGREEMENTS.index(clause.subject.agreement)
    if clause.tense in ("present", "progressive"):
        return verb.present[form], verb.prefix
    if clause.tense == "past" and verb.preterite:
        return verb.preterite[form], verb.prefix
    if clause.tense in ("past", "perfect"):
        return _AUXILIARIES[verb.auxiliary][form], verb.german_participle
    if clause.modal:
        return clause.modal.german[form], verb.bare_infinitive
    return _AUXILIARIES["werden"][form], verb.bare_infinitive


def _constituent(clause: Clause, slot: Slot) -> str:
    if slot == "subject":
        return clause.subject.in_case("nominative")
    if slot == "object" and clause.object:
        return clause.object.in_case(clause.verb.object_case)
    constituent = {"time": clause.time, "complement": clause.complement, "circumstance": clause.circumstance}[
        slot
    ]
    return constituent.german if constituent else ""


def _middle(clause: Clause, front: Slot | None) -> list[str]:
    """The constituents between the brackets, except the one in front; absent ones are empty strings.

    What the listener knows comes early, what is new comes late: pronouns and names, then the time, then what
    is known ("das Buch"), then the circumstances, then what is new ("ein Buch"). "nicht" comes before the
    circumstances and the complement; in a negated clause, and beside "nie" and "schon", what is known comes
    before the time as well, so that time and negation stay together: "das Buch heute nicht".
    """

    def unless_in_front(slot: Slot) -> str:
        return "" if slot == front else _constituent(clause, slot)

    called, known, new = _objects(clause, front)
    not_ = "nicht" if clause.negated and not (clause.object and clause.object.denies) else ""
    time = unless_in_front("time")
    settled = not_ or (clause.time is not None and clause.time.settled)
    return [
        unless_in_front("subject"),
        *called,
        *([*known, time] if settled else [time, *known]),
        not_,
        unless_in_front("circumstance"),
        *new,
        unless_in_front("complement"),
    ]


def _objects(clause: Clause, front: Slot | None) -> tuple[list[str], list[str], list[str]]:
    """Sort the objects into (pronouns and names, known, new).

    Among nouns the dative comes first ("dem Kind das Buch"), among pronouns the accusative ("es ihm").
    """
    called: list[str] = []
    known: list[str] = []
    new: list[str] = []

    def group_of(phrase: Phrase) -> list[str]:
        if phrase.noun is None:
            return called
        return known if phrase.known else new

    if clause.receiver:
        group_of(clause.receiver).append(clause.receiver.in_case("dative"))
    if clause.object and front != "object":
        german = clause.object.in_case(clause.verb.object_case)
        if clause.object.pronoun:
            called.insert(0, german)
        else:
            group_of(clause.object).append(german)
    return called, known, new


def _join(words: list[str]) -> str:
    return " ".join(filter(None, words))
