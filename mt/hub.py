"""Runs on the Hugging Face Hub: ``hub:org/name#revision`` is downloaded once, into mt's own cache.

Where torch is installed, the weights are downloaded and converted here, elsewhere the published engine.
"""

import hashlib
import importlib.util
import json
import logging
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from mt.display import progress, shown, size
from mt.errors import MtError, RunError
from mt.files import cache_folder, locked, make_folder, new_folder, read_text, sha256

LOG = logging.getLogger(__name__)

PREFIX = "hub:"
HUB_ID = r"\w[\w.-]*/\w[\w.-]*"
_NAME = re.compile(rf"{PREFIX}({HUB_ID})(?:#(\w[\w./-]*))?", re.ASCII)
# No other file of a repository is downloaded, and so no pickle.
_ALWAYS = r"config\.yaml|corpus\.json|(src|tgt)_tokenizer\.json"
_ALWAYS += r"|checkpoints/(best|latest|step_\d{7,18}/checkpoint\.json)"
_FILES = {
    "weights": r"checkpoints/step_\d{7,18}/model\.safetensors",
    "engine": r"engine/[0-9a-f]{64}/(float32|int8)/(model\.bin|\w+\.json)",
}
_SECONDS = 10.0
"""How long to wait for the Hub's answer, and for each of its blocks."""
_LOG_IN = "log in with `hf auth login`"
_REASONS = {
    401: f"the Hub does not accept the token, or there is no such repository: check the name, or {_LOG_IN}",
    403: f"the token gives no right to do that: ask for access, or {_LOG_IN} as somebody else",
    404: f"there is no such repository or revision: check the name; if it is private, {_LOG_IN}",
}


def downloaded(name: str) -> Path:
    """The folder of the run ``hub:org/name`` or ``hub:org/name#revision``; without network if it is here."""
    parts = _NAME.fullmatch(name)
    if parts is None:
        raise RunError(f"{shown(name)} is no run on the Hub: write hub:org/name or hub:org/name#revision.")
    hub_id, revision = parts.groups(default="main")
    organization, _, repository = hub_id.partition("/")
    kind = "engine" if importlib.util.find_spec("torch") is None else "weights"
    # The name is last, because that of the folder is that of the run.
    folder = cache_folder() / "hub" / kind / organization / quote(revision, safe="") / repository
    if not folder.exists():
        make_folder(folder.parent)
        # Of several processes, one downloads it.
        with locked(folder.parent):
            if not folder.exists():
                with new_folder(folder) as partial:
                    _download(hub_id, revision, kind, partial)
    return folder


def is_of_run(name: str) -> bool:
    """Whether a file of this name in a repository is part of a run."""
    return any(re.fullmatch(pattern, name, re.ASCII) for pattern in (_ALWAYS, *_FILES.values()))


@contextmanager
def explained(problem: str) -> Iterator[None]:
    """Explain what the Hub or its library reports, in our words: theirs may show addresses and tokens."""
    try:
        yield
    except Exception as error:
        # That of a full disk has a number; those of the library are of this class, too.
        if isinstance(error, MtError) or (isinstance(error, OSError) and error.errno):
            raise
        response = getattr(error, "response", None) or getattr(error.__cause__, "response", None)
        reason = f"the Hub did not answer, or not to the end ({type(error).__name__}): try again"
        if response is not None:
            status = response.status_code
            reason = _REASONS.get(status, f"the Hub answers with status {status}: try again later")
        raise RunError(f"{problem}: {reason}.") from None


def _download(hub_id: str, revision: str, kind: str, folder: Path) -> None:
    """Download the files of a run into an empty folder, and compare them with the Hub's checksums."""
    from huggingface_hub import HfApi, get_session, get_token, hf_hub_url

    token = get_token()
    headers = {"Authorization": f"Bearer {token}"} if token else None
    with explained(f"{PREFIX}{hub_id} cannot be downloaded"):
        api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
        info = api.model_info(hub_id, revision=revision, files_metadata=True, timeout=_SECONDS)
        listed = {file.rfilename: file for file in info.siblings or ()}
        names = _wanted(hub_id, kind, listed)
        num_bytes = sum(listed[name].size or 0 for name in names)
        with progress(num_bytes, unit="bytes", description=f"downloading {hub_id}") as advance:
            for name in names:
                path, file = folder / name, listed[name]
                path.parent.mkdir(parents=True, exist_ok=True)
                digest = hashlib.sha256() if file.lfs else hashlib.sha1(b"blob %d\0" % (file.size or 0))
                url = hf_hub_url(hub_id, name, revision=info.sha, endpoint=api.endpoint)
                stream = get_session().stream("GET", url, headers=headers, timeout=_SECONDS)
                with stream as response, path.open("wb") as out:
                    response.raise_for_status()
                    for block in response.iter_bytes():
                        digest.update(block)
                        out.write(block)
                        advance(len(block))
                if digest.hexdigest() != (file.lfs.sha256 if file.lfs else file.blob_id):
                    raise RunError(f"{PREFIX}{hub_id}: {name} is not what the Hub lists. Download it again.")
        _compare_with_records(hub_id, folder)
    LOG.info("%s%s, at commit %s: %s in %s", PREFIX, hub_id, info.sha, size(num_bytes), cache_folder())


def _wanted(hub_id: str, kind: str, listed: Collection[str]) -> list[str]:
    """The names of the files to download; a repository that does not hold them is refused."""
    where = f"{PREFIX}{hub_id}"
    for name in listed:
        if name.startswith("/") or "\\" in name or ".." in PurePosixPath(name).parts:
            raise RunError(f"{where} lists a file outside itself, {shown(name)!r}: do not use it.")
    if "config.yaml" not in listed:
        remedy = "`mt export --to hub` makes repositories that do."
        if "config.json" in listed and any(name.endswith(".spm") for name in listed):
            remedy = f"It may be a Marian model: try mt import {hub_id} --run PATH."
        held = ", ".join(map(shown, sorted(listed)[:8])) or "nothing"
        raise RunError(f"{where} holds no run of mt: it has no config.yaml, but {held}. {remedy}")
    names = [name for name in listed if re.fullmatch(f"{_ALWAYS}|{_FILES[kind]}", name, re.ASCII)]
    if not any(re.fullmatch(_FILES[kind], name, re.ASCII) for name in names):
        remedy = "Install torch." if kind == "engine" else "Ask its publisher to export it again."
        raise RunError(f"{where} has no {kind} that mt can read. {remedy}")
    return names


def _compare_with_records(hub_id: str, folder: Path) -> None:
    """Compare the files with the checksums that the run itself has of its weights and of its engines."""
    for record in (*folder.glob("checkpoints/*/checkpoint.json"), *folder.glob("engine/*/*/mt_export.json")):
        for name, checksum in json.loads(read_text(record, max_bytes=1_000_000))["checksums"].items():
            file = record.parent / name
            if file.is_file() and sha256(file) != checksum:
                what = f"{file.relative_to(folder)} was changed after it was exported"
                raise RunError(f"{PREFIX}{hub_id}: {what} (its checksum differs). Do not use it.")
