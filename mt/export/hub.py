"""`mt export --to hub`: publish a run on the Hugging Face Hub, without text of its corpus and paths."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

from mt.checkpoint.store import CheckpointStore
from mt.config.config import Config
from mt.config.write import config_to_yaml
from mt.errors import ConfigError, RunError
from mt.hub import PREFIX, explained, is_of_run
from mt.inference.engine.convert import convert
from mt.inference.exported_folder import REFUSED
from mt.inference.loaded_model import load_model
from mt.reports.facts import CorpusFacts, RunFacts, inspect_checkpoint
from mt.reports.report import render
from mt.run_directory import RunDirectory

CARD = "README.md"
_PUBLIC = ("hub", "builtin")
# What a corpus report says without showing text; names of corpora become shareable below.
_OF_CORPUS = (
    "sources temperature splits leaks leaks_removed dropped_in_training target_ratio vocabulary_sizes "
    "abbreviations lines_without_letters"
)


def write_publication(
    run: RunDirectory, hub_id: str, folder: Path, *, checkpoint: str = "best", license: str = "unknown"
) -> dict[str, Path]:
    """Write into an empty folder, named like the repository, all that is published; return the files by name.

    That is a run with a single checkpoint without its training state, with its engine, and a model card.
    """
    if owner := run.lock_owner():
        raise RunError(f"{run.path} is still being trained by {owner}: wait until it is finished.")
    loaded = load_model(run, checkpoint)
    report = _shareable_report(run)
    made = RunDirectory(folder)
    # The corpora that others can name as well.
    public = {source["path"] for source in report.get("sources", ()) if source["kind"] in _PUBLIC}
    config = _shareable_config(loaded.config, public)
    made.config_file.write_text(config_to_yaml(config, comments=False), encoding="utf-8")
    if report:
        text = json.dumps(report, indent=2, ensure_ascii=False) + "\n"
        made.corpus_file.write_text(text, encoding="utf-8")
    shutil.copyfile(run.src_tokenizer_file, made.src_tokenizer_file)
    shutil.copyfile(run.tgt_tokenizer_file, made.tgt_tokenizer_file)
    saved = loaded.checkpoint
    environment = dict(saved.environment)
    environment.pop("init_from", None)
    origin = saved.imported_from or f"{PREFIX}{hub_id}"
    published = replace(saved, best=True, average_of=[], environment=environment, imported_from=origin)
    weights = CheckpointStore(run.checkpoints_dir).load_model(saved)
    CheckpointStore(made.checkpoints_dir).save(published, weights)
    if run.verification_file.exists():
        # Sentences of the corpus, by which int8 is chosen or not.
        shutil.copyfile(run.verification_file, made.verification_file)
    engine = convert(made, "best")
    made.verification_file.unlink(missing_ok=True)
    if (engine / REFUSED).exists():
        shutil.rmtree(made.engine_dir)
    facts = _shareable_facts(run, made, config, public)
    # The scores are those of what is published.
    facts.best = inspect_checkpoint(saved.folder)
    card = render(facts, "md", license=license)
    (folder / CARD).write_text(card, encoding="utf-8")
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            files[path.relative_to(folder).as_posix()] = path
    return files


def push(files: Mapping[str, Path], hub_id: str, *, private: bool) -> None:
    """Publish these files in one commit, in which those of an earlier export are removed."""
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    with explained(f"nothing was published as {PREFIX}{hub_id}"):
        api.create_repo(hub_id, private=private, exist_ok=True)
        info = api.model_info(hub_id)
        if private and not info.private:
            raise ConfigError(f"{PREFIX}{hub_id} exists and is public: name another repository.")
        operations: list[CommitOperationAdd | CommitOperationDelete] = []
        for name, path in files.items():
            operations.append(CommitOperationAdd(name, path))
        for file in info.siblings or ():
            name = file.rfilename
            if is_of_run(name) and name not in files:
                operations.append(CommitOperationDelete(name))
        api.create_commit(hub_id, operations, commit_message="Export by mt")


def _names(paths: str) -> str:
    """The names of files or folders, with commas between them, without where they are."""
    return ",".join(Path(path.strip()).name for path in paths.split(","))


def _shareable_report(run: RunDirectory) -> dict[str, Any]:
    """What the corpus report says without text or paths; empty if there is none, as of an imported model."""
    if not run.corpus_file.exists():
        return {}
    whole = json.loads(run.read_corpus_report())
    report = {key: whole[key] for key in _OF_CORPUS.split() if key in whole}
    splits = [*report["splits"].values()]
    for source in report["sources"]:
        splits += source.get("held_out", {}).values()
        if source["kind"] not in _PUBLIC:
            source["path"] = _names(source["path"])
        if source.get("written"):
            source["written"]["runs"] = _names(source["written"]["runs"])
    for split in splits:
        split |= {"from": [], "examples": {}}
    return report


def _shareable_config(config: Config, public: set[str]) -> Config:
    """The config with the names of files and runs, but not their paths."""
    values = config.model_dump()
    for corpus in (values["data"], *values["data"]["sources"].values()):
        if corpus["path"] not in public:
            corpus["path"] = _names(corpus["path"])
        for key in ("write_src", "write_tgt"):
            writer = corpus[key]
            if writer:
                writer["run"] = _names(writer["run"])
    for name, key in (("init_from", "run"), ("tokenizer", "path")):
        section = values[name]
        if section[key]:
            section[key] = _names(section[key])
    return Config.model_validate(values)


def _shareable_facts(run: RunDirectory, made: RunDirectory, config: Config, public: set[str]) -> RunFacts:
    """The facts of a run for its card, of what is published."""
    facts = RunFacts(run)
    facts.evaluations = [replace(each, data=_shareable(each.data, public)) for each in facts.evaluations]
    if found := facts.behaviours:
        facts.behaviours = replace(found, data=_shareable(found.data, public))
    for session in facts.sessions:
        # After a colon, an error may name a file.
        session.outcome = session.outcome.partition(":")[0]
    facts.environment.pop("init_from", None)
    facts.config = config
    facts.run = made
    if facts.corpus:
        facts.corpus = CorpusFacts.model_validate_json(made.read_corpus_report())
    return facts


def _shareable(data: str, public: set[str]) -> str:
    """What an evaluation says of its data: a path, then languages and a split, with commas between them."""
    parts = []
    for part in data.split(", "):
        is_public = part in public or part.startswith(("sacrebleu:", "builtin:"))
        parts.append(part if is_public else _names(part))
    return ", ".join(parts)
