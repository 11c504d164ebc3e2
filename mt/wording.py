"""Words for counts in messages."""


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as ``1 checkpoint`` or ``2,000 checkpoints``; the plural is an added s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
