"""The rules of the house, held by reading the repository. Each list of what is allowed is whole: additions show."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import avro.schema
import fastavro
import pytest
import typer

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "processor" / "epochfence"
MODULES = sorted(PACKAGE.rglob("*.py"))
SCHEMAS = sorted((REPOSITORY / "schemas").glob("*.avsc"))
VERB_MODULES = sorted(path for path in (PACKAGE / "cli").glob("*.py") if path.stem != "main" and path.stem[0] != "_")

FOUNDATION = {"errors", "settings", "resources"}
# Who may import whom, the package itself aside. From the outside in, and no way back.
ARROWS = {
    "errors": set[str](),
    "resources": set[str](),
    "settings": {"errors"},
    "protocol": set[str](),
    "wire": {"protocol", "errors", "resources"},
    "broker": FOUNDATION,
    "engine": {"wire", "protocol", *FOUNDATION},
    "simulation": {"wire", "protocol", *FOUNDATION},
    "audit": {"engine", "wire", "protocol", *FOUNDATION},
    "clients": {"engine", "wire", "protocol", *FOUNDATION},
    "demo": {"clients", "audit", "simulation", "engine", "broker", "wire", "protocol", *FOUNDATION},
    "testing": {"clients", "audit", "simulation", "engine", "broker", "wire", "protocol", *FOUNDATION},
    "cli": {"demo", "clients", "audit", "simulation", "engine", "broker", "wire", "protocol", *FOUNDATION},
    "__init__": set[str](),
    "__main__": {"cli"},
}
# What each may import from outside the standard library. Packages that are not named: nothing.
THIRD_PARTY = {
    "settings": {"pydantic", "pydantic_settings"},
    # confluent_kafka: murmur2, and the client of a registry.
    "wire": {"fastavro", "confluent_kafka"},
    "broker": {"confluent_kafka"},
    "engine": {"confluent_kafka", "fastavro", "pydantic", "structlog", "yaml"},
    "simulation": {"rich"},
    "audit": {"confluent_kafka", "rich"},
    "clients": {"confluent_kafka", "structlog"},
    "demo": {"confluent_kafka", "rich", "structlog"},
    "testing": {"confluent_kafka", "pytest"},
    "cli": {"confluent_kafka", "rich", "typer"},
}
# The protocol has no clock, chance, log, file or socket: it gets nothing from which to take one.
PROTOCOL_STANDARD_LIBRARY = {
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "operator",
    "struct",
    "typing",
}
# These read the world, write to it, or (hash, id) differ from one process to the next.
PROTOCOL_FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "hash", "id"}
# The copy of a record is made from its own field list, on the hot path.
PROTOCOL_EXCEPTIONS = {"records.py": {"exec"}}

MODULE_LINES = 400
# One file owns every transition (rule 2).
LONGER_MODULES = {"protocol/fold.py": 460}
FUNCTION_LINES = 50


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def imports_of(path: Path) -> Iterator[str]:
    """Every module that is imported anywhere in a file, in functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: a relative import"
            assert node.module
            yield node.module
            if node.module == "epochfence":  # from epochfence import resources
                yield from (f"epochfence.{alias.name}" for alias in node.names)


every_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


@every_module
def test_imports_point_from_the_outside_in(path: Path) -> None:
    package = package_of(path)
    inside = {module.split(".")[1] for module in imports_of(path) if module.startswith("epochfence.")}
    # `from epochfence import __version__` is a name of the package itself.
    inside &= {p.name.removesuffix(".py") for p in PACKAGE.iterdir()}
    assert inside - {package} <= ARROWS[package]


ENGINE_STOREYS = ("", "kafka", "topics", "process")
"""Of the engine, from the ground up: what to do, how librdkafka does it, the topics, the processes."""


@pytest.mark.parametrize("path", sorted((PACKAGE / "engine").rglob("*.py")), ids=name_of)
def test_a_storey_of_the_engine_uses_none_above_it(path: Path) -> None:
    def storey(parts: tuple[str, ...]) -> int:
        return ENGINE_STOREYS.index(parts[0]) if parts and parts[0] in ENGINE_STOREYS else 0

    own = storey(path.relative_to(PACKAGE / "engine").parts)
    used = [module for module in imports_of(path) if module.startswith("epochfence.engine.")]
    assert all(storey(tuple(module.split(".")[2:])) <= own for module in used)
    if own == 0:
        assert "confluent_kafka" not in {module.split(".")[0] for module in imports_of(path)}


@every_module
def test_third_party_imports_are_the_allowed_ones(path: Path) -> None:
    tops = {module.split(".")[0] for module in imports_of(path)} - {"epochfence"}
    third_party = {top for top in tops if top not in sys.stdlib_module_names}
    assert third_party <= THIRD_PARTY.get(package_of(path), set())


@pytest.mark.parametrize("path", sorted((PACKAGE / "protocol").rglob("*.py")), ids=name_of)
def test_the_protocol_cannot_reach_a_clock_chance_or_the_world(path: Path) -> None:
    outside = {module for module in imports_of(path) if not module.startswith("epochfence")}
    assert outside <= PROTOCOL_STANDARD_LIBRARY
    calls = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    names = {called.id for called in calls if isinstance(called, ast.Name)}
    assert names & PROTOCOL_FORBIDDEN_CALLS <= PROTOCOL_EXCEPTIONS.get(path.name, set())


def test_every_package_has_its_arrows() -> None:
    assert {package_of(path) for path in MODULES} <= ARROWS.keys()


@every_module
def test_a_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text("utf-8")
    if text.strip() and path.name != "__main__.py":
        assert ast.get_docstring(ast.parse(text))


@every_module
def test_a_module_is_short_and_its_functions_fit_a_screen(path: Path) -> None:
    text = path.read_text("utf-8")
    limit = LONGER_MODULES.get(str(path.relative_to(PACKAGE)), MODULE_LINES)
    assert len(text.splitlines()) <= limit
    long = [
        f"{node.name}, line {node.lineno}"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES
    ]
    assert not long


# The command line.


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Every command below `command` that does something, with the words that call it."""
    below = getattr(command, "commands", None)
    if not below:
        yield " ".join(words), command
    else:
        for name, child in below.items():
            yield from commands(child, (*words, name))


def test_one_module_a_verb() -> None:
    (verbs,) = [
        ast.literal_eval(node.value)
        for node in ast.parse((PACKAGE / "cli" / "main.py").read_text("utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VERBS"
    ]
    assert {path.stem for path in VERB_MODULES} == set(verbs)


@pytest.mark.parametrize("path", VERB_MODULES, ids=name_of)
def test_a_verb_has_help_with_an_example_that_calls_it(path: Path) -> None:
    app = typer.Typer(callback=lambda: None)  # with a callback, one verb alone is still called by its name
    import_module(f"epochfence.cli.{path.stem}").register(app)
    registered = list(commands(typer.main.get_command(app), ("epochfence",)))
    assert all(words.split()[1] == path.stem for words, _ in registered)
    for words, command in registered:
        said = " ".join(f"{command.help or ''} {command.epilog or ''}".split())
        assert "Example" in said, words
        assert words in said.split("Example", 1)[1]


# The schemas.


def named_types(schema: Any) -> Iterator[dict[str, Any]]:
    """Every record, enum and fixed that is defined in a schema, the outermost first."""
    if isinstance(schema, list):
        for branch in schema:
            yield from named_types(branch)
    elif isinstance(schema, dict):
        if schema["type"] in ("record", "enum", "fixed"):
            yield schema
        for field in schema.get("fields", []):
            yield from named_types(field["type"])
        if schema["type"] == "array":
            yield from named_types(schema["items"])
        elif isinstance(schema["type"], dict | list):
            yield from named_types(schema["type"])


every_schema = pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.stem)


@every_schema
def test_a_schema_parses_alone_with_both_implementations(path: Path) -> None:
    text = path.read_text("utf-8")
    avro.schema.parse(text)
    fastavro.parse_schema(json.loads(text))


@every_schema
def test_a_schemas_file_has_the_name_of_its_record(path: Path) -> None:
    schema = json.loads(path.read_text("utf-8"))
    assert re.sub(r"(?<!^)(?=[A-Z])", "_", schema["name"]).lower() == path.stem
    assert schema["namespace"] == "epochfence"


@every_schema
def test_a_schema_documents_every_type_and_field(path: Path) -> None:
    bare = []
    for named in named_types(json.loads(path.read_text("utf-8"))):
        bare += [named["name"]] if not named.get("doc") else []
        bare += [f"{named['name']}.{field['name']}" for field in named.get("fields", []) if not field.get("doc")]
    assert not bare


@every_schema
def test_an_enum_has_a_default_for_readers_older_than_its_writer(path: Path) -> None:
    enums = [named for named in named_types(json.loads(path.read_text("utf-8"))) if named["type"] == "enum"]
    for enum in enums:
        assert enum["symbols"][-1] == "UNRECOGNIZED"
        assert enum["symbols"].count("UNRECOGNIZED") == 1
        assert enum.get("default") == "UNRECOGNIZED"


@every_schema
def test_a_schema_has_no_union_of_records(path: Path) -> None:
    def unions(node: Any) -> Iterator[list[Any]]:
        if isinstance(node, list):
            yield node
        if isinstance(node, dict):
            for field in node.get("fields", []):
                yield from unions(field["type"])
            for inner in (node.get("items"), node["type"]):
                if isinstance(inner, dict | list):
                    yield from unions(inner)

    for union in unions(json.loads(path.read_text("utf-8"))):
        assert len(union) == 2
        assert union[0] == "null"


def test_a_type_that_stands_in_several_schemas_is_the_same_in_all() -> None:
    """checkpoint.avsc is nested in decision.avsc, Status is in two: one name, one definition, docs and all."""
    seen: dict[str, dict[str, Any]] = {}
    repeated = set()
    for path in SCHEMAS:
        for named in named_types(json.loads(path.read_text("utf-8"))):
            definition = {key: value for key, value in named.items() if key != "namespace"}
            if named["name"] in seen:
                repeated.add(named["name"])
                assert seen[named["name"]] == definition, f"{named['name']} in {path.name}"
            seen[named["name"]] = definition
    assert {"Checkpoint", "Status"} <= repeated


# All files.


def tracked_texts() -> Iterator[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: an sdist has nothing more to say here")
    for name in listed.stdout.splitlines():
        path = REPOSITORY / name
        if path.is_file() and path != Path(__file__):
            yield name, path.read_text("utf-8", errors="replace")


def test_no_path_of_anybodys_machine_is_in_the_repository() -> None:
    # The home of the image's own user is nobody's.
    machine_path = re.compile(r"(?<![\w.])/(?:work|root|Users|home(?!/epochfence\b))/")
    found = [
        f"{name}:{number}"
        for name, text in tracked_texts()
        for number, line in enumerate(text.splitlines(), 1)
        if machine_path.search(line)
    ]
    assert not found


def test_nothing_is_left_to_do_in_a_comment() -> None:
    left = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
    assert not [name for name, text in tracked_texts() if left.search(text)]


def test_the_tracked_files_end_in_a_newline_and_have_no_blanks_at_line_ends() -> None:
    bad = [
        name
        for name, text in tracked_texts()
        if name.endswith((".py", ".avsc", ".yaml", ".toml", ".md")) and text
        if not text.endswith("\n") or re.search(r"[ \t]$", text, re.MULTILINE)
    ]
    assert not bad
