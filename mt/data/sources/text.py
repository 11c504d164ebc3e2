r"""Opening text, of a corpus and of the lines that a command reads, by one rule; what is not text is refused.

Text is UTF-8, with or without a byte order mark, or that in gzip. Lines end with ``\n`` or ``\r\n`` and
nowhere else: `str.splitlines` would also split at U+2028 and the like, and so misalign parallel files.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from shlex import quote
from typing import Literal

from mt.display import shown
from mt.errors import DataError
from mt.system import wait_for_input

Holds = Literal["rows", "pairs", "sentences"]
"""What lines should be: rows of a table, pairs of cells with a tab between them, or sentences."""

STDIN = 0
STDIN_NAME = "standard input"
GZIP = b"\x1f\x8b"
# The most that is read into memory at once: a line, or the one list of a .json file. Without a limit, a few
# megabytes of gzip that unpack to one line of many gigabytes would take up all the memory.
MAX_LINE_BYTES = 2**28
MAX_SENTENCE_BYTES = 10_000_000

_START = rb"(\xef\xbb\xbf)?\s*"
_MARKUP = _START + rb"(?=<(\?xml|!doctype|tmx|xliff|mteval|[st]stset|(src|ref)set|doc|url|html|resources)\b)"
_OFFICE_MARKS = rb"(word/|xl/|\[Content_Types|mimetypeapplication/vnd)"
_OFFICE = ("a PDF or office document", "save it as plain text, in UTF-8")
_TO_SEGMENTS = "take out the segments: sed -n 's|.*<seg[^>]*>\\(.*\\)</seg>.*|\\1|p' {0} > {0}.txt"
_TO_MESSAGES = "take out the texts: msgcat --no-wrap {0} | sed -n 's|^msgid \"\\(..*\\)\"$|\\1|p' > {0}.txt"
_TO_SUBTITLES = "take out the text: tr -d '\\r' < {0} | grep -vE '^([0-9]*|WEBVTT.*)$|-->' > {0}.txt"
_TO_UNTIMED = "take out the times: sed -E 's/^\\[[^]]*\\] *//' {0} > {0}.txt"
_TO_DIALOGUE = "take out the text: sed -nE 's/^Dialogue: ([^,]*,){{9}}//p' {0} > {0}.txt"
_TO_TABLE = (
    'make a table of it, with its languages in data.columns=1,2: python3 -c "import sys, '
    "xml.etree.ElementTree as E; [print(*(' '.join(' '.join(s.itertext()).split()) for s in "
    "tu.iter('seg')), sep='\\t') for tu in E.parse(sys.argv[1]).iter('tu')]\" {0} > {0}.tsv"
)
# What begins like this is not text, whatever its name; and what to do.
_NOT_TEXT = {
    rb"PK\x03\x04(?s:.*)" + _OFFICE_MARKS: _OFFICE,
    rb"\{\\rtf|%PDF-|\xd0\xcf\x11\xe0": _OFFICE,
    rb"PK\x03\x04": ("a zip archive", "unpack it with unzip {0}"),
    rb"BZh91AY&SY|\xfd7zXZ|\x28\xb5\x2f\xfd": ("packed", "unpack it with bunzip2, unxz or unzstd {0}"),
    rb"PAR1\x15": ("a parquet file", "give it the extension .parquet"),
    rb"\xff\xfe|\xfe\xff": ("in UTF-16", "convert it with iconv -f UTF-16 -t UTF-8 {0}"),
    rb"([^\0]\0){4}": ("in UTF-16", "convert it with iconv -f UTF-16LE -t UTF-8 {0}"),
    _MARKUP + rb"(?s:.*)<tmx": ("TMX", _TO_TABLE),
    _MARKUP + rb"(?s:.*)<seg": ("SGM or XML", _TO_SEGMENTS),
    _MARKUP + rb"(?s:.*)<(doc|url)": (
        "lines of tags",
        "take them out on both sides: grep -v '^ *<' {0} > {0}.txt",
    ),
    _MARKUP: ("XML or HTML", "write its sentences into a text file, one per line"),
    _START + rb"(\d+\s+\d\d:\d\d:\d\d[,.]\d{3} -->|WEBVTT\b)": ("subtitles", _TO_SUBTITLES),
    _START + rb"\[(\d\d:)?\d\d:\d\d[,.]\d{2,3}( -->|\])": ("subtitles", _TO_UNTIMED),
    _START + rb"\[Script Info\]\s*\n": ("subtitles", _TO_DIALOGUE),
    _START + rb'(#[^\n]*\n\s*)*msgid\s+"': ("a PO file", _TO_MESSAGES),
}
_JSON = _START + rb'(\[?\s*\{\s*"[^"\n]*"\s*:|\[\s*"([^"\\\n]|\\.)*"\s*,\s*")'


def text_lines(path: Path, holds: Holds = "rows") -> Iterator[tuple[int, str]]:
    """The lines of a file of a corpus, numbered from 1; those that are not UTF-8 have lone surrogates."""
    return enumerate(lines_of(path, holds, keep_bad=True), start=1)


def lines_of(file: Path | None, holds: Holds = "sentences", *, keep_bad: bool = False) -> Iterator[str]:
    """The lines of a file, or of standard input, without line ends; gzip is unpacked.

    Bytes that are not UTF-8 are an error, or become lone surrogates if ``keep_bad``.
    """
    name, argument = (STDIN_NAME, "FILE") if file is None else (shown(file), quote(shown(file)))
    most = MAX_LINE_BYTES if holds == "rows" else MAX_SENTENCE_BYTES
    number = 0
    try:
        if file is None:
            # Otherwise reading would end where nothing has arrived yet.
            wait_for_input(STDIN)
        # The reading thread opens and closes the file itself: closing it in another thread, or exiting
        # Python, would wait for input, and using sys.stdin would make Python abort.
        with open(STDIN if file is None else file, "rb", closefd=file is not None) as opened:
            is_gzip = opened.peek(2).startswith(GZIP)
            with gzip.open(opened) if is_gzip else nullcontext(opened) as stream:
                # Only what has arrived: a pipe may stay open.
                if fault := _not_text(stream.peek(4096)[:4096], holds):
                    raise DataError(f"{name} is {fault[0]}, not lines of text: {fault[1].format(argument)}.")
                # The end of a line has at most two bytes.
                while raw := stream.readline(most + 2):
                    number += 1
                    content = raw.removesuffix(b"\n").removesuffix(b"\r")
                    if len(content) > most:
                        why = f"is longer than {most:,} bytes: break it into shorter lines"
                        raise DataError(f"{name}, line {number} {why}.")
                    line = content.decode(errors="surrogateescape")
                    if not keep_bad and (reason := why_not_text(line, name, number)):
                        raise DataError(reason)
                    if number > 1:
                        yield line
                        continue
                    line = line.removeprefix("\ufeff")
                    # A file without a line feed may have the line ends of old Macs.
                    yield from [line] if raw.endswith(b"\n") else line.split("\r")
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(file or STDIN_NAME, error) from error


def why_not_text(line: str, name: str, number: int) -> str | None:
    """Describe why a line, with undecodable bytes as surrogates, is not UTF-8; None for a line that is."""
    try:
        line.encode("utf-8", "surrogateescape").decode("utf-8")
    except UnicodeDecodeError as error:
        return (
            f"{name}, line {number} is not UTF-8 ({error.reason} at byte {error.start}). "
            "Convert it, for example with iconv -f latin1 -t utf-8."
        )
    return None


def unreadable(path: Path | str, error: Exception) -> DataError:
    """The error for a file that cannot be opened, or is damaged."""
    reason = getattr(error, "strerror", "") or str(error).strip().split("\n")[0].rstrip(".")
    is_missing = isinstance(error, FileNotFoundError)
    remedy = "check its name" if is_missing else "make it readable, or fetch or write it again"
    return DataError(f"{shown(path)} cannot be read ({reason}): {remedy}.")


def _not_text(head: bytes, holds: Holds) -> tuple[str, str] | None:
    """What a text is that begins like this, and what to do, if it does not hold what it should."""
    for pattern, fault in _NOT_TEXT.items():
        if re.match(pattern, head, re.IGNORECASE):
            return fault
    if holds != "rows" and re.match(_JSON, head):
        return "JSON", "take out a field, such as text: jq -r .text {0} > {0}.txt"
    # The last line may be cut.
    lines = [line for line in head.decode(errors="replace").split("\n")[:-1] if line.strip()]
    num_rows = sum("\t" in line.strip() for line in lines)
    if holds == "sentences" and len(lines) >= 2 and num_rows > 0.8 * len(lines):
        return "a table of several columns", "take out one, such as the first: cut -f 1 < {0} > {0}.txt"
    return None
