"""English word order, and whole sentences of both languages: clauses joined, capitals, commas.

In English the subject precedes the verb, and "do" is the auxiliary where there is no other.
"""

from typing import NamedTuple

from mt.builtin.primer.clause import Clause, Slot, clause_after, main_clause, subordinate_clause
from mt.builtin.primer.lexicon import Agreement, Modal, Verb
from mt.builtin.primer.noun_phrase import Phrase

_BE_PRESENT: dict[Agreement, str] = {"ich": "am", "du": "are", "er": "is", "wir": "are"}
_BE_PAST: dict[Agreement, str] = {"ich": "was", "du": "were", "er": "was", "wir": "were"}

Words = tuple[str, str]


class Sentence(NamedTuple):
    """A sentence in both languages, and its clauses."""

    english: str
    german: str
    clauses: tuple[Clause, ...]


def english_clause(clause: Clause, front: Slot | None = None) -> str:
    """A statement or a subordinate clause; at most the time is moved to the front."""
    auxiliary, rest = _verb_words(clause, clause.negated)
    words = [clause.time.english] if clause.time and front == "time" else []
    words.append(clause.subject.english)
    return _join(
        [
            *words,
            *_with_not(auxiliary, clause),
            _middle_time(clause, front),
            rest,
            *_after_verb(clause, front),
        ]
    )


def english_question(clause: Clause, front: Slot | None = None) -> str:
    """A yes/no question, or a question for ``front``, whose constituent is a question word."""
    if front == "subject":  # "Who eats ...": as in a statement
        return english_clause(clause)
    auxiliary, rest = _verb_words(clause, needs_auxiliary=True)
    negation = "not" if clause.negated else ""
    words = [
        _asked(clause, front),
        auxiliary,
        clause.subject.english,
        negation,
        _middle_time(clause, front),
        rest,
    ]
    return _join([*words, *_after_verb(clause, front)])


def _verb_words(clause: Clause, needs_auxiliary: bool) -> tuple[str, str]:
    """The auxiliary ("" where there is none and none is needed) and the rest of the verb."""
    verb, agreement = clause.verb, clause.subject.agreement
    if clause.tense == "modal" and clause.modal:
        return _modal_words(clause.modal, verb, agreement, needs_auxiliary, clause.negated)
    if clause.tense == "future":
        return "will", verb.english
    if clause.tense == "perfect":
        return ("has" if agreement == "er" else "have"), verb.participle
    if clause.tense == "progressive":
        return _BE_PRESENT[agreement], verb.ing
    if verb.english == "be":
        return (_BE_PAST if clause.tense == "past" else _BE_PRESENT)[agreement], ""
    if clause.tense == "past":
        return ("did", verb.english) if needs_auxiliary else ("", verb.past)
    return _simple_present(verb.english, verb.third_person, agreement, needs_auxiliary)


def _modal_words(
    modal: Modal, verb: Verb, agreement: Agreement, needs_auxiliary: bool, negated: bool
) -> tuple[str, str]:
    if modal.english == "would like":
        return "would", f"like to {verb.english}"
    if modal.english == "be allowed":
        return _BE_PRESENT[agreement], f"allowed to {verb.english}"
    # "must not" forbids; what denies "must" ("muss nicht") is "does not have to".
    if modal.english == "must" and negated:
        auxiliary, rest = _simple_present("have", "has", agreement, needs_auxiliary=True)
        return auxiliary, f"{rest} to {verb.english}"
    if modal.english == "want":
        auxiliary, rest = _simple_present("want", "wants", agreement, needs_auxiliary)
        return auxiliary, f"{rest} to {verb.english}"
    return modal.english, verb.english


def _simple_present(
    base: str, third_person: str, agreement: Agreement, needs_auxiliary: bool
) -> tuple[str, str]:
    if needs_auxiliary:
        return ("does" if agreement == "er" else "do"), base
    return "", third_person if agreement == "er" else base


def _with_not(auxiliary: str, clause: Clause) -> list[str]:
    if not clause.negated:
        return [auxiliary]
    return ["cannot"] if auxiliary == "can" else [auxiliary, "not"]


def _middle_time(clause: Clause, front: Slot | None) -> str:
    return clause.time.english if clause.time and clause.time.middle and front != "time" else ""


def _asked(clause: Clause, front: Slot | None) -> str:
    """The question word, or the object that is asked for; nothing in a yes/no question."""
    if front == "object" and clause.object:
        return clause.object.english
    asked = {"time": clause.time, "complement": clause.complement, "circumstance": clause.circumstance}
    constituent = asked.get(front or "")
    return constituent.english if constituent else ""


def _after_verb(clause: Clause, front: Slot | None) -> list[str]:
    words = _objects(clause, front)
    if clause.complement and front != "complement":
        words.append(clause.complement.english)
    if clause.circumstance and front != "circumstance":
        words.append(clause.circumstance.english)
    if clause.time and front != "time" and not clause.time.middle:
        words.append(clause.time.english)
    return words


def _objects(clause: Clause, front: Slot | None) -> list[str]:
    """Particle and objects: "picks up the child", "picks him up"; "gives him a book", "gives it to him"."""
    particle, receiver = clause.verb.particle, clause.receiver
    thing = clause.object if front != "object" else None
    if thing is None:
        stranded = clause.verb.preposition if clause.object else ""  # "What are you looking for?"
        return [particle, _object(receiver), stranded]
    if receiver and thing.pronoun:
        return [_object(thing), "to", _object(receiver)]
    if thing.pronoun:
        return [clause.verb.preposition, _object(thing), particle]
    return [particle, _object(receiver), clause.verb.preposition, _object(thing)]


def _object(phrase: Phrase | None) -> str:
    return phrase.english_object if phrase else ""


def _join(words: list[str]) -> str:
    return " ".join(filter(None, words))


def statement(clause: Clause, front: Slot = "subject", addressee: Words | None = None) -> Sentence:
    """Say ``Yesterday the boy read a book.``, ``Gestern hat der Junge ein Buch gelesen.``"""
    english, german = english_clause(clause, front), main_clause(clause, front)
    return _finish(english, german, ".", addressee, clause)


def question(clause: Clause, front: Slot | None = None, addressee: Words | None = None) -> Sentence:
    """Ask yes or no, or for the constituent ``front``; ``addressee`` is somebody called by name first."""
    english, german = english_question(clause, front), main_clause(clause, front)
    return _finish(english, german, "?", addressee, clause)


def with_subordinate(main: Clause, conjunction: Words, subordinate: Clause) -> Sentence:
    """Say ``He is sad because the dog is ill.``: in the German second clause the verb comes last."""
    english = f"{english_clause(main)} {conjunction[0]} {english_clause(subordinate)}"
    german = f"{main_clause(main)}, {subordinate_clause(conjunction[1], subordinate)}"
    return _finish(english, german, ".", None, main, subordinate)


def question_with_subordinate(
    main: Clause, conjunction: Words, subordinate: Clause, addressee: Words
) -> Sentence:
    """Ask ``Anna, do you know whether the dog is ill?``"""
    english = f"{english_question(main)} {conjunction[0]} {english_clause(subordinate)}"
    german = f"{main_clause(main, None)}, {subordinate_clause(conjunction[1], subordinate)}"
    return _finish(english, german, "?", addressee, main, subordinate)


def subordinate_first(conjunction: Words, subordinate: Clause, main: Clause) -> Sentence:
    """Say ``If he is tired, he can sleep.``: the German condition is the front of the main clause."""
    english = f"{conjunction[0]} {english_clause(subordinate)}, {english_clause(main)}"
    german = f"{subordinate_clause(conjunction[1], subordinate)}, {clause_after(main)}"
    return _finish(english, german, ".", None, subordinate, main)


def coordinated(first: Clause, conjunction: Words, second: Clause) -> Sentence:
    """Join two main clauses; "and" and "but" leave the German order as it is, and "aber" needs a comma."""
    comma = "," if conjunction[0] == "but" else ""
    english = f"{english_clause(first)}{comma} {conjunction[0]} {english_clause(second)}"
    german = f"{main_clause(first)}{comma} {conjunction[1]} {main_clause(second)}"
    return _finish(english, german, ".", None, first, second)


def _finish(english: str, german: str, mark: str, addressee: Words | None, *clauses: Clause) -> Sentence:
    if addressee:
        english, german = f"{addressee[0]}, {english}", f"{addressee[1]}, {german}"
    return Sentence(english[0].upper() + english[1:] + mark, german[0].upper() + german[1:] + mark, clauses)
