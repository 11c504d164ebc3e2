"""Noun phrases: articles, adjective endings and cases in German; "a" and "an" in English.

A German adjective shows case and gender only where the word before it does not: after "der" it is *weak* (-e,
-en), after "ein" it is *mixed* ("ein alter Mann", since "ein" does not show the gender), and with nothing
or a number before it *strong*.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from mt.builtin.primer.lexicon import Adjective, Agreement, Case, Gender, Noun, load_lexicon

CASES: tuple[Case, ...] = ("nominative", "accusative", "dative")

# For each case, the endings of masculine, feminine, neuter and plural. "-" is no ending.
_COLUMNS = {"m": 0, "f": 1, "n": 2, "plural": 3}
_ENDINGS = {
    "der": {"nominative": "er e es e", "accusative": "en e es e", "dative": "em er em en"},  # dieser, viele
    "ein": {"nominative": "- e - e", "accusative": "en e - e", "dative": "em er em en"},  # kein, mein
    "weak": {"nominative": "e e e en", "accusative": "en e e en", "dative": "en en en en"},
    "mixed": {"nominative": "er e es en", "accusative": "en e es en", "dative": "en en en en"},
    "strong": {"nominative": "er e es e", "accusative": "en e es e", "dative": "em er em en"},
}
_THE = {"nominative": "der die das die", "accusative": "den die das die", "dative": "dem der dem den"}
_CONTRACTIONS = {
    "in dem": "im", "in das": "ins", "an dem": "am",
    "zu dem": "zum", "zu der": "zur", "von dem": "vom",
}  # fmt: skip

Declension = Literal["the", "der", "ein", "none"]


@dataclass(frozen=True, eq=False)
class Determiner:
    """The determiner of a noun: in English by number, in German as a stem and the endings it takes.

    ``known`` marks a definite noun phrase ("the", "my"): word order depends on it. ``denies`` marks
    "kein", which means "no" or "not ... a".
    """

    english: str
    english_plural: str
    german: str
    declension: Declension
    known: bool = False
    denies: bool = False


@dataclass(frozen=True, eq=False)
class Phrase:
    """A noun phrase, name or pronoun, ready for both languages.

    ``german`` holds nominative, accusative and dative. ``gender`` is None for a plural. ``lemma`` names the
    thing itself, whatever its number and article: splits are made by it. ``described`` is True if there is an
    adjective.
    """

    lemma: str
    english: str
    english_object: str
    german: tuple[str, str, str]
    agreement: Agreement
    gender: Gender | None = None
    known: bool = True
    pronoun: bool = False
    denies: bool = False
    noun: Noun | None = None
    described: bool = False

    def in_case(self, case: Case) -> str:
        """The German form in ``case``."""
        return self.german[CASES.index(case)]


THE = Determiner("the", "the", "", "the", known=True)
THIS = Determiner("this", "these", "dies", "der", known=True)
WHICH = Determiner("which", "which", "welch", "der")
A = Determiner("a", "", "ein", "ein")
BARE = Determiner("", "", "", "none")
NO = Determiner("no", "no", "kein", "ein", denies=True)
NOT_A = Determiner("a", "", "kein", "ein", denies=True)
NOT_BARE = Determiner("", "", "kein", "ein", denies=True)
MANY = Determiner("", "many", "viel", "der")
SOME = Determiner("", "some", "einig", "der")
HOW_MANY = Determiner("", "how many", "wie viel", "der")
POSSESSIVES = tuple(
    Determiner(english, english, german, "ein", known=True)
    for english, german in load_lexicon().possessives.items()
)
NUMBERS = tuple(Determiner("", english, german, "none") for english, german in load_lexicon().numbers.items())


@cache
def noun_phrase(
    noun: Noun, determiner: Determiner, plural: bool = False, adjective: Adjective | None = None
) -> Phrase:
    """Build "the old man" with its German cases ("der alte Mann", "den alten Mann", "dem alten Mann")."""
    return Phrase(
        lemma=noun.english,
        english=(english := _english(noun, determiner, plural, adjective)),
        english_object=english,
        german=(
            _german(noun, determiner, plural, adjective, "nominative"),
            _german(noun, determiner, plural, adjective, "accusative"),
            _german(noun, determiner, plural, adjective, "dative"),
        ),
        agreement="wir" if plural else "er",
        gender=None if plural else noun.gender,
        known=determiner.known,
        denies=determiner.denies,
        noun=noun,
        described=adjective is not None,
    )


def _english(noun: Noun, determiner: Determiner, plural: bool, adjective: Adjective | None) -> str:
    words = [adjective.english] if adjective else []
    words.append(noun.english_plural if plural else noun.english)
    article = determiner.english_plural if plural else determiner.english
    # Written by letter: the lexicon has no word such as "hour" or "university".
    if article == "a" and words[0][0] in "aeiou":
        article = "an"
    return " ".join([article, *words] if article else words)


def _german(noun: Noun, determiner: Determiner, plural: bool, adjective: Adjective | None, case: Case) -> str:
    column = _COLUMNS["plural" if plural else noun.gender]
    words = []
    if determiner.declension == "the":
        words.append(_THE[case].split()[column])
    elif determiner.declension in ("der", "ein"):
        words.append(determiner.german + _ending(determiner.declension, case, column))
    elif determiner.german:
        words.append(determiner.german)
    if adjective:
        words.append(adjective.stem + _ending(_adjective_declension(determiner), case, column))
    words.append(_inflected(noun, plural, case))
    return " ".join(words)


def _ending(declension: str, case: Case, column: int) -> str:
    return _ENDINGS[declension][case].split()[column].removeprefix("-")


def _adjective_declension(determiner: Determiner) -> str:
    # "viele" and "einige" look like "diese", but leave the adjective strong: "viele alte Männer".
    if determiner in (MANY, SOME, HOW_MANY):
        return "strong"
    return {"the": "weak", "der": "weak", "ein": "mixed", "none": "strong"}[determiner.declension]


def _inflected(noun: Noun, plural: bool, case: Case) -> str:
    if plural:
        return noun.dative_plural if case == "dative" else noun.plural
    return noun.german if case == "nominative" else noun.oblique


@cache
def pronoun(name: str) -> Phrase:
    """The personal pronoun ``name`` ("I", "he", ...); "familiar" and "formal" are the two kinds of "you"."""
    lexicon = load_lexicon()
    row = (lexicon.pronouns | lexicon.you)[name]
    subject, english_object, nominative, accusative, dative, agreement = row
    return Phrase(
        lemma=name,
        english=subject,
        english_object=english_object,
        german=(nominative, accusative, dative),
        agreement=_agreement(agreement),
        pronoun=True,
    )


def _agreement(name: str) -> Agreement:
    agreements: dict[str, Agreement] = {"ich": "ich", "du": "du", "er": "er", "wir": "wir"}
    return agreements[name]


@cache
def it(noun: Noun) -> Phrase:
    """The pronoun "it" for a noun: German follows the gender of the noun."""
    forms = {"m": ("er", "ihn", "ihm"), "f": ("sie", "sie", "ihr"), "n": ("es", "es", "ihm")}
    return Phrase(noun.english, "it", "it", forms[noun.gender], "er", pronoun=True)


@cache
def name(first_name: str, gender: Gender) -> Phrase:
    """A first name, the same in every case."""
    return Phrase(first_name, first_name, first_name, (first_name,) * 3, "er", gender)


@cache
def title_and_surname(surname: str, gender: Gender) -> Phrase:
    """ "Mr Weber" ("Herr Weber", but "Herrn Weber" in the other cases) or "Mrs Weber"."""
    if gender == "f":
        return Phrase(
            f"Mrs {surname}", f"Mrs {surname}", f"Mrs {surname}", (f"Frau {surname}",) * 3, "er", "f"
        )
    english = f"Mr {surname}"
    return Phrase(
        english, english, english, (f"Herr {surname}", f"Herrn {surname}", f"Herrn {surname}"), "er", "m"
    )


def pronoun_for(phrase: Phrase) -> Phrase | None:
    """The pronoun that refers back to a person; None where the languages disagree ("das Mädchen")."""
    if phrase.pronoun:
        return phrase
    if phrase.agreement == "wir":
        return pronoun("they")
    return {"m": pronoun("he"), "f": pronoun("she")}.get(phrase.gender or "")


def prepositional(preposition: str, phrase: Phrase, case: Case) -> str:
    """A German preposition and its phrase, contracted where German does ("im Park", "zur Schule")."""
    words = f"{preposition} {phrase.in_case(case)}"
    first_two = " ".join(words.split()[:2])
    contracted = _CONTRACTIONS.get(first_two)
    return words.replace(first_two, contracted, 1) if contracted else words
