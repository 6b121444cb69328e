"""The command line in processes of their own, as a person would use it."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE_ROOT = Path(__file__).parent.parent / "processor"


def command_line(*arguments: str) -> list[str]:
    """`epochfence …` of this tree, with this interpreter."""
    return [sys.executable, "-m", "epochfence", *arguments]


def environment() -> dict[str, str]:
    """The environment without settings of this project, so that a test says all of its own.

    And with buffered output, as a person has it: an output that is shown too late must not look prompt here.
    """
    ours = ("EPOCHFENCE_", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    paths = [str(SOURCE_ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


def run_verb(*arguments: str, stdin: bytes = b"", timeout_s: float = 60.0) -> "subprocess.CompletedProcess[bytes]":
    """Run a verb to its end, with its output caught."""
    return subprocess.run(
        command_line(*arguments),
        input=stdin,
        capture_output=True,
        timeout=timeout_s,
        env=environment(),
        check=False,
    )


def start_verb(*arguments: str) -> "subprocess.Popen[bytes]":
    """Start a verb, with pipes to talk to it. To see to its end is the caller's."""
    return subprocess.Popen(
        command_line(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
