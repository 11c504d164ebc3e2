"""Whole sentences: statements, questions, and clauses joined; capitals and commas. Each returns (English, German)."""

from mt.data.primer.clause import Clause, Slot, clause_after, main_clause, subordinate_clause
from mt.data.primer.english import english_clause, english_question

Pair = tuple[str, str]


def statement(clause: Clause, front: Slot = "subject", addressee: Pair | None = None) -> Pair:
    """ "Yesterday the boy read a book." -> "Gestern hat der Junge ein Buch gelesen." """
    return _finish(english_clause(clause, front), main_clause(clause, front), addressee=addressee)


def question(clause: Clause, front: Slot | None = None, addressee: Pair | None = None) -> Pair:
    """A yes/no question, or one for the constituent ``front``; ``addressee`` is somebody called by name first."""
    return _finish(english_question(clause, front), main_clause(clause, front), "?", addressee)


def with_subordinate(
    main: Clause,
    conjunction: str,
    german_conjunction: str,
    content: Clause,
    *,
    ask: bool = False,
    addressee: Pair | None = None,
) -> Pair:
    """ "He is sad because the dog is ill.", or as a question: "Do you know whether the boy is ill?" """
    english = english_question(main) if ask else english_clause(main)
    german = main_clause(main, None if ask else "subject")
    english = f"{english} {conjunction} {english_clause(content)}"
    german = f"{german}, {subordinate_clause(german_conjunction, content)}"
    return _finish(english, german, "?" if ask else ".", addressee)


def condition_first(conjunction: str, german_conjunction: str, condition: Clause, main: Clause) -> Pair:
    """ "If he is tired, he can sleep." The condition is the front of the German main clause."""
    english = f"{conjunction} {english_clause(condition)}, {english_clause(main)}"
    return _finish(english, f"{subordinate_clause(german_conjunction, condition)}, {clause_after(main)}")


def coordinated(first: Clause, conjunction: str, german_conjunction: str, second: Clause) -> Pair:
    """Two main clauses; "and" and "but" leave the German order as it is, and "aber" wants a comma."""
    comma = "," if conjunction == "but" else ""
    english = f"{english_clause(first)}{comma} {conjunction} {english_clause(second)}"
    return _finish(english, f"{main_clause(first)}{comma} {german_conjunction} {main_clause(second)}")


def _finish(english: str, german: str, mark: str = ".", addressee: Pair | None = None) -> Pair:
    if addressee:
        english, german = f"{addressee[0]}, {english}", f"{addressee[1]}, {german}"
    return english[0].upper() + english[1:] + mark, german[0].upper() + german[1:] + mark
