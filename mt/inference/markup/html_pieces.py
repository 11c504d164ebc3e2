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

# What is not listed, such as an element that somebody made up, is around words.
_BLOCK = re.compile(
    "address|article|aside|audio|base|blockquote|body|br|button|canvas|caption|center|col|colgroup|dd|details|"
    "dialog|dir|div|dl|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hgroup|hr|"
    "html|iframe|legend|li|link|main|map|menu|menuitem|meta|nav|noframes|noscript|object|ol|optgroup|option|p|"
    "param|pre|search|section|select|source|summary|table|tbody|td|template|textarea|tfoot|th|thead|title|tr|"
    "track|ul|video"
)
_VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr")
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
            kind: Kind = "break" if _BLOCK.fullmatch(name) else "point"
            pieces.append(Piece(kind, page[match.start() : start]))
        elif name:
            pieces.append(_tag(match, name))
        else:
            kind = "text" if match["text"] else "break" if match["unfinished"] else "point"
            pieces.append(Piece(kind, match[0]))
    return _with_what_stays(pieces)


def _tag(match: re.Match[str], name: str) -> Piece:
    """The piece of a tag that opens or closes an element."""
    values = []
    seen = set()
    stays = name in _STAY
    offset = match.start("rest") - match.start()
    for attribute in _ATTRIBUTE.finditer(match["rest"]):
        key = attribute["name"].lower()
        value = attribute["value"]
        if value and key in _TRANSLATED and key not in seen:
            values.append((offset + attribute.start("value"), offset + attribute.end("value")))
        stays = stays or (key == "translate" and (value or "").strip("\"'").lower() == "no")
        seen.add(key)
    if match["slash"]:
        kind: Kind = "close"
    elif _VOID.fullmatch(name) or match["rest"].endswith("/"):
        kind = "point"
    elif stays:
        kind = "stay"
    else:
        kind = "open"
    return Piece(kind, match[0], name, values)


def _with_what_stays(pieces: list[Piece]) -> list[Piece]:
    """Make one piece of each element that stays, and what ends a text of the tags of blocks."""
    ends = partners(piece._replace(kind="open") if piece.kind == "stay" else piece for piece in pieces)
    joined: list[Piece] = []
    end = 0
    for index, piece in enumerate(pieces):
        if index < end:
            continue
        kind = piece.kind
        raw = piece.raw
        if kind == "stay" and index in ends:
            end = ends[index] + 1
            raw = "".join(part.raw for part in pieces[index:end])
            piece = Piece(kind, raw, piece.name)
        elif kind == "stay":
            kind = "open"
        joined.append(piece._replace(kind="break" if _BLOCK.fullmatch(piece.name) else kind))
    return joined
