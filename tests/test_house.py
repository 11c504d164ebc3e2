"""The plan of the house, held: floors, lines, the spine, names, and no option that nobody reads."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from mt.config.config import Config

PACKAGE = Path(__file__).parent.parent / "mt"
FILES = sorted(PACKAGE.rglob("*.py"))

# Imports go down; on one floor only inside one folder. A room is a folder, or a file of the top folder.
FLOORS = {
    room: floor
    for floor, rooms in enumerate(
        (
            "system memory",
            "errors processes special_tokens sides display files",
            "hub",
            "config masks seeding device run_directory distributed",
            "builtin",
            "data transformer checkpoint",
            "search",
            "inference",
            "evaluation",
            "training",
            "preflight attention_maps reports serving",
            "export",
            "cli",
            "__main__",
        )
    )
    for room in rooms.split()
}
# The lines of each room, which only fall: whoever makes a room smaller lowers its bound. A room is a folder
# of `mt/`, or the files at its top. What is around it is counted too, so that moving lines saves none.
LINES = {
    "top": 1343,
    "config": 1510,
    "builtin": 80,
    "data": 4956,
    "transformer": 1418,
    "checkpoint": 489,
    "search": 833,
    "inference": 3445,
    "evaluation": 1352,
    "training": 3006,
    "preflight": 1778,
    "attention_maps": 274,
    "reports": 1096,
    "export": 987,
    "serving": 626,
    "cli": 2488,
    "other text in mt": 1208,
    "scripts": 4187,
    "tests": 29_917,
    "documents": 3084,
    "spine": 1609,
}
# More than this below its bound, and the bound is to be lowered.
SLACK = 20

# What a reader came for: how the model is trained and how it translates.
SPINE = [
    f"mt.{module}"
    for modules in (
        "special_tokens masks transformer.attention transformer.feed_forward transformer.layer "
        "transformer.encoder transformer.decoder transformer.embedding transformer.transformer "
        "transformer.cache transformer.build search.request search.hypothesis search.stepwise search.greedy "
        "search.beam",
        "data.batches.sampler data.batches.batch",
        "training.schedule training.loss training.update training.loop",
    )
    for module in modules.split()
]
# What the spine still imports from outside itself. Wings leave this set; nothing enters it.
SPINE_IMPORTS = {
    "mt.config.model",
    "mt.config.training",
    "mt.data.batches.pairs",
    "mt.device",
    "mt.search.rules",
    "mt.search.strategy",
    "mt.search.top_k",
    "mt.training.session",
    "mt.training.train_state",
    "mt.transformer",  # its kernels
}

# A test imports what it likes of its own room, and of the others only these modules: the inside of a room may
# change without a test elsewhere. The set only shrinks.
SEAMS = {
    name
    for names in (
        "__main__ builtin.primer builtin.reverse checkpoint.record checkpoint.store",
        "checkpoint.training_state cli.app config.config config.data config.load config.model config.sources",
        "config.training data.batches.alignment data.batches.batch data.batches.pairs",
        "data.batches.stream data.corpus data.prepare data.text_form data.tokenizers.external",
        "data.tokenizers.tokenizer data.tokenizers.train data.written device display errors",
        "evaluation.analysis evaluation.record",
        "inference.engine.load inference.engines inference.labels inference.loaded_model",
        "inference.model_translator inference.torch_engine inference.translator inference.writer masks",
        "memory processes",
        "reports.facts run_directory search.greedy search.hypothesis search.request search.strategy",
        "serving.app sides special_tokens training.budget training.loss training.progress training.run",
        "training.schedule training.session training.train_state transformer.attention transformer.build",
        "transformer.kernels transformer.kernels.attention transformer.kernels.cross_entropy",
        "transformer.transformer transformer.weights",
    )
    for name in names.split()
}


def _room(module: str) -> str:
    """``mt.data.batches.batch`` -> ``data``; ``mt`` itself, which holds the version, has no room."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def _module(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {_module(file): file for file in FILES}


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _imports(tree: ast.AST) -> list[tuple[ast.stmt, str]]:
    found: list[tuple[ast.stmt, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.append((node, node.module or ""))
    return found


def _imports_by_string(file: Path) -> set[str]:
    """The modules that ``import_module("mt...")`` imports; of an f-string, all that it may mean."""
    patterns = set()
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else node.args
            texts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in parts]
            patterns.add("".join(texts))
    ours = [pattern for pattern in patterns if pattern.startswith(re.escape("mt."))]
    return {name for name in MODULES for pattern in ours if re.fullmatch(pattern, name)}


def test_imports_go_down() -> None:
    for module, file in MODULES.items():
        room = _room(module)
        for imported in (*(name for _, name in _imports(_tree(file))), *_imports_by_string(file)):
            if not imported.startswith("mt.") or room == "":
                continue
            other = _room(imported)
            assert other == room or FLOORS[other] < FLOORS[room], f"{module} imports {imported}"


def test_no_import_circle() -> None:
    imports = {
        module: {
            name
            for node, found in _imports(ast.Module(_tree(file).body, []))
            for name in (found, *(f"{found}.{alias.name}" for alias in getattr(node, "names", ())))
            if name in MODULES and name != module and node.col_offset == 0
        }
        | _imports_by_string(file) - {module}
        for module, file in MODULES.items()
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for imported in sorted(imports[module]):
                visit(imported, (*path, module))
            done.add(module)

    for module in sorted(MODULES):
        visit(module, ())


def test_every_room_has_its_floor() -> None:
    rooms = {_room(_module(file)) for file in FILES} - {""}
    assert rooms == set(FLOORS)


# What needs torch, the fast engine or tables is imported where it is needed: translating needs none of them,
# nor does finding a mistake.
IMPORTED_WHERE_NEEDED = {
    "mt.data.sources.find": {"mt.data.sources.hub"},
    "mt.data.sources.read": {"pyarrow.parquet"},
    "mt.hub": {"huggingface_hub"},
    "mt.inference.engine.load": {"mt.inference.engine.convert"},
    "mt.inference.translator": {"mt.inference.model_translator", "mt.inference.engine.load"},
    "mt.training.run": {"mt.inference.engine.convert"},
}


def test_imports_are_at_the_top_outside_cli() -> None:
    for module, file in MODULES.items():
        tree = _tree(file)
        if _room(module) == "cli":
            continue
        inside = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
        }
        hidden = {name for node, name in _imports(tree) if id(node) in inside}
        assert hidden == IMPORTED_WHERE_NEEDED.get(module, set()), module


def test_the_command_line_imports_nothing_heavy_at_its_top() -> None:
    heavy = {"torch", "datasets", "tokenizers", "pydantic", "sacrebleu", "numpy", "yaml"}
    for file in [*(PACKAGE / "cli").glob("*.py"), PACKAGE / "__main__.py"]:
        for node in _tree(file).body:
            names = {name.split(".")[0] for _, name in _imports(ast.Module([node], []))}
            is_for_types_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            assert is_for_types_only or not names & heavy, file


def test_no_drawers() -> None:
    assert [module for module in MODULES if re.search(r"util|helper|common|misc", module)] == []


def test_init_files_hold_a_docstring_only() -> None:
    for file in PACKAGE.rglob("__init__.py"):
        docstring, *rest = _tree(file).body
        assert isinstance(docstring, ast.Expr), file
        # In the spine, fast forms of operations are named after the package: `kernels.attention`.
        assert file.parent in (PACKAGE, PACKAGE / "transformer" / "kernels") or not rest, file


def test_every_option_is_read_by_somebody_outside_the_config() -> None:
    read = {
        node.attr
        for file in FILES
        if _room(_module(file)) != "config"
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.Attribute)
    }
    for section_name, section in Config.model_fields.items():
        assert section.annotation is not None
        for field in section.annotation.model_fields:
            assert field in read, f"nobody reads {section_name}.{field}"


def test_no_pickle_and_no_remote_code() -> None:
    for file in FILES:
        tree = _tree(file)
        names = {name.split(".")[0] for _, name in _imports(tree)}
        assert not names & {"pickle", "dill", "shelve", "marshal"}, file
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                keywords = {keyword.arg: keyword.value for keyword in node.keywords}
                assert "trust_remote_code" not in keywords, file
                if isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "torch.load":
                    assert ast.unparse(keywords["weights_only"]) == "True", file


def test_only_one_room_knows_how_processes_talk_and_one_how_many_there_are() -> None:
    for module, file in MODULES.items():
        tree = _tree(file)
        names = [name for _, name in _imports(tree)]
        nodes = list(ast.walk(tree))
        talks = "torch.distributed" in file.read_text() or any(
            name.startswith("torch.nn.parallel") for name in names
        )
        assert talks == (module == "mt.distributed"), module
        strings = {node.value for node in nodes if isinstance(node, ast.Constant)}
        assert bool(strings & {"WORLD_SIZE", "RANK", "LOCAL_RANK"}) == (module == "mt.processes"), module
        # What depends on the number of processes is decided by `ARE_SEVERAL`, or is the share of one of them.
        if module not in ("mt.processes", "mt.training.run"):
            compared = [ast.unparse(node) for node in nodes if isinstance(node, ast.Compare | ast.If)]
            conditions = [condition.partition(":")[0] for condition in compared]
            assert not [condition for condition in conditions if "processes.SIZE" in condition], module


def test_yaml_is_loaded_safely() -> None:
    for file in FILES:
        text = file.read_text()
        assert not re.search(r"yaml\.(unsafe_load|full_load|UnsafeLoader|FullLoader|Loader\b)", text), file
        assert "yaml.load(" not in text or "SafeLoader" in text, file


def test_what_is_printed_on_stderr_shows_its_control_characters() -> None:
    assert [file for file in FILES if "err=True" in file.read_text()] == [], "say it with mt.cli.logs.say"


# Tokens in a line of code, and comprehensions in 100 lines: lines that are bought with density are not saved.
DENSITY = (9.4, 4.5)


def test_code_is_not_denser_than_it_was() -> None:
    tokens, comprehensions, lines = 0, 0, set[tuple[Path, int]]()
    for file in FILES:
        nodes = list(ast.walk(_tree(file)))
        texts = [
            node.value
            for node in nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ]
        of_docstrings = {line for text in texts for line in range(text.lineno, text.end_lineno or 0)}
        of_docstrings |= {text.end_lineno for text in texts if text.end_lineno}
        comprehensions += sum(
            isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) for node in nodes
        )
        for token in tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline):
            is_code = token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
            if is_code and token.start[0] not in of_docstrings:
                tokens += 1
                lines |= {(file, line) for line in range(token.start[0], token.end[0] + 1)}
    assert tokens / len(lines) <= DENSITY[0]
    assert 100 * comprehensions / len(lines) <= DENSITY[1]


def test_conditions_are_written_as_such() -> None:
    """No text or list is multiplied by a truth, and no f-string is within another."""
    truth = re.compile(r"\b(is|has|needs)_\w+(\(.*\))?$|\bfinished$|\bnot ")
    for file in FILES:
        for node in ast.walk(_tree(file)):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                is_text = isinstance(node.left, ast.List | ast.JoinedStr | ast.Constant)
                assert not (is_text and truth.search(ast.unparse(node.right))), (file, node.lineno)
            if isinstance(node, ast.FormattedValue):
                inner = [part for part in ast.walk(node.value) if isinstance(part, ast.JoinedStr)]
                assert inner == [], (file, node.lineno)


def _lines_by_room() -> dict[str, int]:
    lines = dict.fromkeys(LINES, 0)

    def count(room: str, files: Iterable[Path]) -> None:
        lines[room] += sum(file.read_bytes().count(b"\n") for file in files)

    for file in FILES:
        folder, *rest = file.relative_to(PACKAGE).parts
        count(folder if rest else "top", [file])
        if _module(file) in SPINE:
            count("spine", [file])
    root = PACKAGE.parent
    text = (".js", ".css", ".yaml", ".html", ".j2", ".md")
    count("other text in mt", (file for file in PACKAGE.rglob("*") if file.suffix in text))
    scripts = [file for file in (root / "scripts").rglob("*") if file.is_file()]
    count("scripts", (file for file in scripts if file.suffix in ("", ".py")))
    count("tests", (root / "tests").rglob("*.py"))
    count("documents", [*(root / "docs").glob("*.md"), root / "README.md", root / "CHANGELOG.md"])
    return lines


def test_each_room_is_within_its_bound_and_its_bound_is_lowered() -> None:
    lines = _lines_by_room()
    assert {room: count for room, count in lines.items() if count > LINES[room]} == {}
    slack = {room: count for room, count in lines.items() if count < LINES[room] - SLACK}
    assert slack == {}, "these rooms are smaller now: lower their bounds"


def test_the_spine_is_there_and_imports_no_more_wings() -> None:
    imported = {
        name if module == "mt" else module
        for spine in SPINE
        for node, module in _imports(_tree(MODULES[spine]))
        for name in (f"mt.{alias.name}" for alias in getattr(node, "names", ()))
        if module.split(".")[0] == "mt"
    }
    assert imported - set(SPINE) == SPINE_IMPORTS


# Words and phrases that were invented here, and what the field says instead (whole words, in any text that
# somebody reads).
INVENTED = {
    r"(is|are|was) no numbers?": "NaN, not finite",
    r"end marks?": "end-of-sentence token, EOS",
    r"blanks?": "spaces",
    r"small letters": "lower case",
    r"(begin|begun|began|begins|beginning|train|trained|made|read) anew": "start over, again",
    r"trainees?": "TrainState",
    r"(a|one|earlier|this|first|next|last) sittings?": "session",
    r"judged": "evaluated",
    r"foreign tokenizers?": "external tokenizer",
    r"carr(y|ies|ied) over": "copy",
    r"what differs is": "differences are",
    r"hide words": "replace with UNK",
    r"made_once": "cached",
    r"(goes|go) on (after|from|with|to)": "continue",
    r"(verb|it|which) wants": "requires",
}
READ_BY_PEOPLE = [
    *FILES,
    *(PACKAGE.parent / "docs").glob("*.md"),
    *PACKAGE.parent.glob("*.md"),
    *(PACKAGE.parent / "configs").glob("*.yaml"),
    *(PACKAGE.parent / "scripts").rglob("*.py"),
    *(file for file in (PACKAGE.parent / "scripts").iterdir() if file.is_file() and not file.suffix),
]


def test_the_fields_own_words() -> None:
    for file in READ_BY_PEOPLE:
        # Names are read word by word, too.
        text = re.sub(r"\s+", " ", file.read_text(encoding="utf-8"))
        for invented, instead in INVENTED.items():
            found = re.search(rf"(?<![a-z])({invented})(?![a-z])", text, re.IGNORECASE)
            assert not found, f"{file}: {found and found[0]!r}: say {instead}"


def test_tests_reach_into_other_rooms_by_seams_only() -> None:
    imported = set()
    for file in (PACKAGE.parent / "tests").rglob("*.py"):
        room, *rest = file.relative_to(PACKAGE.parent / "tests").parts
        if room == "golden":
            continue
        for node, module in _imports(_tree(file)):
            for alias in getattr(node, "names", ()) if module.startswith("mt.") or module == "mt" else ():
                name = f"{module}.{alias.name}" if f"{module}.{alias.name}" in MODULES else module
                is_own = _room(name) == room if rest else f"mt.{_room(name)}" in MODULES
                if name != "mt" and not is_own:
                    imported.add(name.removeprefix("mt."))
    assert imported == SEAMS
