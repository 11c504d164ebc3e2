"""scripts/release builds and tags what is committed, dated and of that version, and refuses anything else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

# Stands for python, and in its environments for the commands of the wheel; it records what is asked.
PYTHON = """\
#!/usr/bin/env bash
echo "${0##*/} $*" | sed "s#/[^ ]*/#.../#g" >>"$LOG"
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && for name in python mt mtrain; do cp "$0" "$3/bin/$name"; done ;;
*"-t sdist -d "*) mkdir -p "${@: -1}" && touch "${@: -1}/mt_from_scratch-1.2.3.tar.gz" ;;
"-m pip wheel "*) touch "${*: -2:1}/mt_from_scratch-1.2.3-py3-none-any.whl" ;;
--version) echo "mt ${WHEEL:-1.2.3}" ;;
esac
"""


def git(checkout: Path, *arguments: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.check_output(["git", *who, *arguments], cwd=checkout, text=True).strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with nothing but what scripts/release reads, and a python that only records."""
    checkout = tmp_path / "mt"
    for name, text in (
        ("mt/__init__.py", '__version__ = "1.2.3"\n'),
        ("CHANGELOG.md", "# Changelog\n\n## 1.2.3 (2026-01-01)\n\n## 1.2 (2025-01-01)\n"),
        ("constraints.txt", "a==1 \\\n    --hash=sha256:00\n"),
        (".gitignore", "dist/\n"),
    ):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    (checkout / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "release", checkout / "scripts")
    demo = checkout / "scripts" / "demo"
    demo.write_text('#!/usr/bin/env bash\necho demo >>"$LOG"\n')
    demo.chmod(0o755)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    git(checkout, "init", "--quiet")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "a")
    return checkout


def release(checkout: Path, version: str, **more: str) -> tuple[int, str]:
    """The exit code and stderr."""
    who = {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.org"}
    ours = {"PYTHON": str(checkout.parent / "python"), "LOG": str(checkout.parent / "log")}
    command = ["scripts/release", version]
    environment = os.environ | who | ours | more
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_release_is_built_tried_and_then_tagged(checkout: Path) -> None:
    assert release(checkout, "1.2.3", WHEEL="1.2.2")[0] != 0
    assert (git(checkout, "tag"), (checkout / "dist").exists()) == ("", False)
    (checkout.parent / "log").unlink()
    (checkout / "dist").mkdir()
    (checkout / "dist" / "older.whl").touch()
    for _ in range(2):  # The second time, as where the tag was fetched, it stays.
        assert release(checkout, "1.2.3")[0] == 0
        files = sorted(file.name for file in (checkout / "dist").iterdir())
        assert files == ["mt_from_scratch-1.2.3-py3-none-any.whl", "mt_from_scratch-1.2.3.tar.gz"]
        assert git(checkout, "cat-file", "-t", "v1.2.3") == "tag"
        assert git(checkout, "rev-parse", "v1.2.3^{commit}") == git(checkout, "rev-parse", "HEAD")
    asked = (checkout.parent / "log").read_text().splitlines()
    assert asked.index("demo") < asked.index("mt translate The king is tired.") < len(asked)
    train = next(line for line in asked if line.startswith("mt train "))
    assert "training.max_steps=50" in train
    wheel, check = ".../mt_from_scratch-1.2.3-py3-none-any.whl", asked.index("python -m pip check")
    assert asked[check - 1].endswith(f" -c .../constraints.txt {wheel}")
    assert check < asked.index("mtrain --version") < asked.index(train)


@pytest.mark.parametrize(
    ("version", "file", "text", "reason"),
    [
        ("1.2", "", "", "is 1.2.3, not 1.2."),
        ("1.2.3", "CHANGELOG.md", "## 1.2.3 (unreleased)\n", "unreleased"),
        ("1.2.3", "CHANGELOG.md", "## 1.2.30 (2026-01-01)\n", "no section '## 1.2.3 "),
        ("1.2.3", "new.txt", "", "not committed"),
    ],
)
def test_what_is_not_ready_fails(checkout: Path, version: str, file: str, text: str, reason: str) -> None:
    if file:
        (checkout / file).write_text(text)
    code, err = release(checkout, version)
    assert (code, reason in err, (checkout.parent / "log").exists()) == (2, True, False), err


def test_a_version_that_was_tagged_elsewhere_is_refused(checkout: Path) -> None:
    git(checkout, "tag", "v1.2.3")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message", "b")
    assert "another commit" in release(checkout, "1.2.3")[1]
