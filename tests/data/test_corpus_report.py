"""The report of a corpus: what is written to corpus.json, and read back from runs of every version."""

import json
from pathlib import Path

import pytest

from mt.data.corpus_report import CorpusReport, LeakReport, SourceReport, SplitReport, recorded_fingerprints

GOLDEN = Path(__file__).parent.parent / "golden"
REPORT = CorpusReport(
    sources=[SourceReport("corpus", "folder", None, "en", "de", None, 1.0, 2, "0a")],
    splits={
        "train": SplitReport("given", ["a", "b"], 2, "0a", {"empty": 1}, {"empty": [["", "x"]]}),
        "validation": SplitReport("given", ["v"], 1, "0b"),
        "test": SplitReport("carved", ["t"], 1, "0c"),
    },
    leaks={"test": LeakReport(1, source=2, target=0, pair=0)},
    leaks_removed=False,
)


def test_the_fingerprints_are_read_back_from_what_was_written() -> None:
    content = REPORT.model_dump_json().encode()
    assert recorded_fingerprints(content) == {"train": "0a", "validation": "0b", "test": "0c"}
    assert CorpusReport.model_validate_json(content) == REPORT
    first = content.replace(b'"source":2', b'"source":{"exact":1,"normalised":2}')
    assert first != content
    assert CorpusReport.model_validate_json(first) == REPORT


@pytest.mark.parametrize(
    "file", sorted(GOLDEN.glob("format_*/run/corpus.json")), ids=lambda file: file.parts[-3]
)
def test_the_fingerprints_of_golden_runs_can_be_read(file: Path) -> None:
    expected = {name: split["fingerprint"] for name, split in json.loads(file.read_bytes())["splits"].items()}
    assert recorded_fingerprints(file.read_bytes()) == expected


@pytest.mark.parametrize("content", [b"", b"{}", b'{"splits": {"train": {}}}', b"[]", b"[" * 100_000])
def test_a_damaged_corpus_json_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        recorded_fingerprints(content)
