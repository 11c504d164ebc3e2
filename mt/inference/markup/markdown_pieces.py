"""Takes Markdown apart: code, targets of links and marks of lists stay, marks of emphasis are like tags."""

import re

from mt.inference.markup.pieces import Kind, Piece

_PIECE = re.compile(
    r"(?P<break>^ {0,3}(?P<fence>```|~~~)(?:.*?^ {0,3}(?P=fence)[^\n]*$|.*+)"
    r"|\n(?:[ \t]*+\n)+|^[ \t]*+(?:(?:[-*+>]|#{1,6}|\d{1,9}[.)])[ \t]++)+|\|)"
    r"|(?P<stay>(?P<ticks>`{1,2})(?!`)[^\n]{1,1000}?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<open_link>!?\[(?=[^\[\]]{0,1000}\]\())"
    r'|(?P<close_link>\]\([^()\s]{0,2000}(?: +"[^"\n]{0,200}")?\))'
    r"|(?P<open>(?<![\w*_~])(?:\*\*|__|~~|[*_])(?=[^\s*_~]))"
    r"|(?P<close>(?<=[^\s*_~])(?:\*\*|__|~~|[*_])(?![\w*_~]))",
    re.DOTALL | re.MULTILINE,
)
_KINDS: dict[str, Kind] = {"open_link": "open", "close_link": "close", "break": "point"}


def markdown_pieces(page: str) -> list[Piece]:
    """Take a page apart."""
    pieces: list[Piece] = []
    end = 0
    for match in _PIECE.finditer(page):
        if end < match.start():
            pieces.append(Piece("text", page[end : match.start()]))
        end = match.end()
        group = str(match.lastgroup)
        name = "link" if group.endswith("link") else match[0]
        kind: Kind = _KINDS.get(group, group)  # type: ignore[arg-type]
        pieces.append(Piece(kind, match[0], name, ends_text=group == "break"))
    if end < len(page):
        pieces.append(Piece("text", page[end:]))
    return pieces
