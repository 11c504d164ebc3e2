"""The memory of training hardly grows with the corpus, as docs/clusters.md says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "scaling"
MORE_PAIRS = 540_000


@pytest.mark.slow
def test_ten_times_the_pairs_take_little_more_memory(tmp_path: Path) -> None:
    sizes = ["60000", str(60_000 + MORE_PAIRS)]
    done = subprocess.run(
        [sys.executable, SCRIPT, "--folder", tmp_path, *sizes], capture_output=True, text=True, check=True
    )
    peaks = [int(number) for number in re.findall(r"RssAnon at most (\d+) MB", done.stdout)]
    assert len(peaks) == 6
    for small, large in zip(peaks[:3], peaks[3:], strict=True):
        # The bound of the docs is 30 bytes a pair; a process of this size differs by 20 MB from time to time.
        assert large - small < 30 * MORE_PAIRS / 1e6 + 30
