"""The documents say what is there: their links lead somewhere, and their tables are those of the code."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest

from epochfence.cli.main import VERBS
from epochfence.errors import EpochfenceError
from epochfence.settings import Settings

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text("utf-8")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def rows(text: str, head: str) -> list[list[str]]:
    """The cells of the table whose first line begins so."""
    lines = text[text.index(head) :].splitlines()
    table = takewhile(lambda line: line.startswith("|"), lines)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in list(table)[2:]]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", path.read_text("utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_test_that_is_named_is_there(path: Path) -> None:
    text = path.read_text("utf-8")
    names = [Path(name).name for name in re.findall(r"`((?:tests/\w+/)?test_\w+\.py)`", text)]
    there = {test.name for test in (ROOT / "tests").rglob("test_*.py")}
    assert set(names) <= there


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"\((\d{4}-[\w-]+\.md)\)", (folder / "README.md").read_text("utf-8"))
    assert listed == sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(name[:4]) for name in listed] == list(range(1, len(listed) + 1))


def test_every_setting_is_in_the_readme_with_its_default() -> None:
    told = {row[0].strip("`"): row[1].strip("`") for row in rows(README, "| setting | default |")}
    told["kafka"] = told.pop("[kafka]")
    assert told.keys() == Settings.model_fields.keys()
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, bool):
            assert told[name] == str(field.default).lower(), name
        elif isinstance(field.default, int):
            assert told[name].split()[0] == str(field.default), name
        elif isinstance(field.default, str):
            assert told[name] == field.default, name


def test_every_verb_is_in_the_readme_and_in_its_page() -> None:
    told = {cell.split()[0] for row in rows(README, "| verb | does |") for cell in re.findall(r"`([^`]+)`", row[0])}
    assert set(VERBS) <= told
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    headed = {verb for head in re.findall(r"^## (.+)$", page, re.MULTILINE) for verb in head.split(", ")}
    assert headed == set(VERBS)


def test_every_exit_code_of_an_error_is_in_the_page() -> None:
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    told = {int(row[0]) for row in rows(page, "| exit code | means |") if row[0].isdigit()}
    codes = {EpochfenceError.exit_code, *(kind.exit_code for kind in EpochfenceError.__subclasses__())}
    assert codes <= told


def test_the_refusals_that_are_listed_are_those_that_are_said() -> None:
    """Each quoted message, between its gaps, is a text of the engine."""
    page = (ROOT / "docs" / "operating.md").read_text("utf-8")
    engine = " ".join(path.read_text("utf-8") for path in (ROOT / "processor" / "epochfence" / "engine").glob("*.py"))
    said = re.sub(r'"\s*\n\s*f?"', "", engine)
    for message, *_ in rows(page, "| message | what happened |"):
        parts = re.split(r"…|\S*\[p\]\S*|\(input .*?\)", message.strip("`"))
        for part in (part.strip(" :,") for part in parts):
            assert part in said, part
