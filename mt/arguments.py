"""Checks of the types of arguments in the Python API (docs/python.md); an error names the argument."""

from collections.abc import Iterable
from numbers import Integral


def require_integers(**arguments: object) -> None:
    """Check numbers, given by the names of their arguments.

    Raises:
        TypeError: If one is not an integer, or is a bool.
    """
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise TypeError(f"{name} must be an integer, not {value!r}")


def require_instance(kind: type, **arguments: object) -> None:
    """Check objects, given by the names of their arguments.

    Raises:
        TypeError: If one is not an instance of ``kind``.
    """
    for name, value in arguments.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, not {value!r}")


def refuse_single_string(**arguments: object) -> None:
    """Check sequences, given by the names of their arguments.

    Raises:
        TypeError: If one is a single string, which would be taken for a sequence of characters.
    """
    for name, value in arguments.items():
        if isinstance(value, str):
            raise TypeError(f"{name} must be a sequence, not a single string")


def require_strings(**arguments: Iterable[object]) -> None:
    """Check sequences of strings, given by the names of their arguments.

    Raises:
        TypeError: If one is a single string, or an element is not a string.
    """
    refuse_single_string(**arguments)
    for name, values in arguments.items():
        for value in values:
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a sequence of strings, but one of them is {value!r}")


def require_pairs(**arguments: Iterable[object]) -> None:
    """Check sequences of pairs of strings, given by the names of their arguments.

    Raises:
        TypeError: If one is a single string, or an element is not a pair of strings.
    """
    refuse_single_string(**arguments)
    for name, values in arguments.items():
        for value in values:
            match value:
                case (str(), str()):
                    pass
                case _:
                    raise TypeError(
                        f"{name} must be a sequence of pairs of strings, but one of them is {value!r}"
                    )
