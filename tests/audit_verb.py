"""`epochfence audit …` in this process, on an archive in memory instead of a cluster."""

import sys
from typing import NamedTuple

import pytest

from epochfence.cli import audit as verb
from epochfence.cli.main import main
from tests.memory_archive import MemoryArchive


class Said(NamedTuple):
    """What the verb left behind."""

    code: int
    out: str
    err: str


def run_audit(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], archive: MemoryArchive, *arguments: str
) -> Said:
    """Run it with these arguments, as a person would, to its end."""
    monkeypatch.setattr(verb, "open_archive", lambda servers, prefix: archive)
    monkeypatch.setattr(sys, "argv", ["epochfence", "audit", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    code = left.value.code
    assert isinstance(code, int)
    return Said(code, *capfd.readouterr())
