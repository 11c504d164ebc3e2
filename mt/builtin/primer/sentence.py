"""Whole sentences: statements, questions, and clauses joined; capitals and commas."""

from typing import NamedTuple

from mt.builtin.primer.clause import Clause, Slot, clause_after, main_clause, subordinate_clause
from mt.builtin.primer.english import english_clause, english_question

Words = tuple[str, str]


class Sentence(NamedTuple):
    """A sentence in both languages, and the clauses that it says them by."""

    english: str
    german: str
    clauses: tuple[Clause, ...]


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
    """Join two main clauses; "and" and "but" leave the German order as it is, and "aber" wants a comma."""
    comma = "," if conjunction[0] == "but" else ""
    english = f"{english_clause(first)}{comma} {conjunction[0]} {english_clause(second)}"
    german = f"{main_clause(first)}{comma} {conjunction[1]} {main_clause(second)}"
    return _finish(english, german, ".", None, first, second)


def _finish(english: str, german: str, mark: str, addressee: Words | None, *clauses: Clause) -> Sentence:
    if addressee:
        english, german = f"{addressee[0]}, {english}", f"{addressee[1]}, {german}"
    return Sentence(english[0].upper() + english[1:] + mark, german[0].upper() + german[1:] + mark, clauses)
