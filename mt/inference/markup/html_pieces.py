"""Takes HTML apart, in time that grows with its length.

``html.parser`` does not: that of Python 3.11 takes 38 s for 40 KB of ``<a ``. Where a tag, a comment or a
value in quotes never ends, the rest of the page stays; browsers drop it (HTML standard, section 13.2.5).
"""

import re

from mt.inference.markup.pieces import Kind, Piece, partners

# Unrolled loops, because before Python 3.11.5 possessive groups do not match all that they should.
_NO_TAG = r"<(?![A-Za-z/!?])[^<]*"
_VALUE = r"""=(?:\s*"[^"]*"|\s*'[^']*'|(?!\s*["']))"""
_PIECE = re.compile(
    rf"(?P<text>[^<]+(?:{_NO_TAG})*|(?:{_NO_TAG})+)"
    r"|(?P<hidden><!--(?:-?>|.*?(?:--!?>|\Z))|<(?:[!?]|/(?![A-Za-z]))[^>]*+(?:>|\Z))"
    rf"|<(?P<slash>/?)(?P<name>[A-Za-z][^\s/>]*+)(?P<rest>[^>=]*(?:{_VALUE}[^>=]*)*)>"
    r"|(?P<unfinished>.+)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""(?P<name>[^\s/>=]++)(?:\s*+=\s*+(?P<value>"[^"]*"|'[^']*'|[^\s>]++))?""")
_TRANSLATED = ("alt", "title", "placeholder")
_HAS_READ_ATTRIBUTE = re.compile("alt|title|placeholder|translate", re.IGNORECASE)

# What is not listed, such as an element that somebody made up, is around words.
_BLOCK_NAMES = (
    "address article aside audio base blockquote body br button canvas caption center col colgroup dd "
    "details dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 "
    "head header hgroup hr html iframe legend li link main map menu menuitem meta nav noframes noscript "
    "object ol optgroup option p param pre search section select source summary table tbody td template "
    "textarea tfoot th thead title tr track ul video"
)
_VOID_NAMES = "area base br col embed hr img input link meta param source track wbr"
_BLOCK, _VOID = frozenset(_BLOCK_NAMES.split()), frozenset(_VOID_NAMES.split())
_STAY = frozenset({"code", "kbd", "math", "pre", "samp", "textarea", "var"})
# Their content is no markup.
_RAW = frozenset({"iframe", "noembed", "noframes", "plaintext", "script", "style", "svg", "textarea", "xmp"})


def html_pieces(page: str) -> list[Piece]:
    """Take a page apart."""
    pieces: list[Piece] = []
    start = 0
    while match := _PIECE.match(page, start):
        start = match.end()
        name = (match["name"] or "").lower()
        if name in _RAW and not match["slash"] and not match["rest"].endswith("/"):
            closing = re.compile(f"</{name}[^>]*>?", re.IGNORECASE).search(page, start)
            start = closing.end() if closing else len(page)
            pieces.append(Piece("point", page[match.start() : start], ends_text=name in _BLOCK))
        elif name:
            pieces.append(_tag(match, name))
        else:
            kind: Kind = "text" if match["text"] else "point"
            pieces.append(Piece(kind, match[0], ends_text=bool(match["unfinished"])))
    return _with_what_stays(pieces)


def _tag(match: re.Match[str], name: str) -> Piece:
    """The piece of a tag that opens or closes an element."""
    values = []
    seen = set()
    stays = name in _STAY
    rest = match["rest"]
    offset = match.start("rest") - match.start()
    for attribute in _ATTRIBUTE.finditer(rest) if _HAS_READ_ATTRIBUTE.search(rest) else ():
        key = attribute["name"].lower()
        value = attribute["value"]
        if value and key in _TRANSLATED and key not in seen:
            values.append((offset + attribute.start("value"), offset + attribute.end("value")))
        stays = stays or (key == "translate" and (value or "").strip("\"'").lower() == "no")
        seen.add(key)
    if match["slash"]:
        kind: Kind = "close"
    elif name in _VOID or rest.endswith("/"):
        kind = "point"
    elif stays:
        kind = "stay"
    else:
        kind = "open"
    return Piece(kind, match[0], name, values, name in _BLOCK)


def _with_what_stays(pieces: list[Piece]) -> list[Piece]:
    """Make one piece of each element that stays."""
    if all(piece.kind != "stay" for piece in pieces):
        return pieces
    ends = partners(pieces)
    joined: list[Piece] = []
    end = 0
    for index, piece in enumerate(pieces):
        if index < end:
            continue
        if piece.kind == "stay" and index in ends:
            end = ends[index] + 1
            raw = "".join(part.raw for part in pieces[index:end])
            piece = Piece("stay", raw, ends_text=piece.ends_text)
        elif piece.kind == "stay":
            piece = piece._replace(kind="open")
        joined.append(piece)
    return joined
