"""A processor whose Kafka clients stand still at a chosen point while a file is there: for faults at an exact moment.

As a module it is `epochfence run` with these clients; nothing else of the product is changed:

    python -m tests.held_processor POINT GATE --slot NAME ...

While the file GATE is there, it writes GATE.reached when it comes to POINT, and waits until GATE has gone. The points:

    fetched     records were fetched, and nothing was decided of them
    offsets     the decisions are at the cluster; the offsets come next
    commit      the offsets are in the transaction; its commit comes next
    committed   the cluster has committed, and the processor does not know it yet
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer

from tests.processor_process import RunningProcessor
from tests.verbs import environment

POINTS = ("fetched", "offsets", "commit", "committed")


class HeldProcessor(RunningProcessor):
    """`epochfence run` that is held at `point` as soon as it comes there. `release` lets it go on for good."""

    def __init__(self, *arguments: Any, point: str, **options: Any) -> None:
        super().__init__(*arguments, **options)
        assert point in POINTS
        self.gate = self.stdout.with_suffix(".gate")
        self._point = point

    def start(self, *options: str) -> None:
        """As RunningProcessor's, by way of this file."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        self._said_before = self.stdout.stat().st_size if self.stdout.exists() else 0
        command = [sys.executable, "-m", "tests.held_processor", self._point, str(self.gate), *self._options, *options]
        here = environment()
        here["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent.parent)
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self._cwd, env=here
            )

    def hold(self) -> None:
        """From now on it is held when it comes to its point."""
        reached(self.gate).unlink(missing_ok=True)
        self.gate.touch()

    def release(self) -> None:
        """It goes on, and is not held again."""
        self.gate.unlink(missing_ok=True)

    def is_held(self) -> bool:
        """Whether it stands at its point."""
        return reached(self.gate).exists()


def reached(gate: Path) -> Path:
    return gate.with_suffix(".reached")


class _Gate:
    point = ""
    path = Path()

    @classmethod
    def pass_by(cls, point: str) -> None:
        if point != cls.point or not cls.path.exists():
            return
        reached(cls.path).touch()
        while cls.path.exists():
            time.sleep(0.005)


class _HeldConsumer(Consumer):
    _fetched = False

    def poll(self, *arguments: Any, **options: Any) -> Message | None:
        message = super().poll(*arguments, **options)
        self._fetched = message is not None and message.error() is None
        return message

    def consume(self, *arguments: Any, **options: Any) -> list[Message]:
        messages = super().consume(*arguments, **options)
        if self._fetched or any(message.error() is None for message in messages):
            _Gate.pass_by("fetched")
        return messages


class _HeldProducer(Producer):
    def send_offsets_to_transaction(self, *arguments: Any, **options: Any) -> None:
        self.flush(30)
        _Gate.pass_by("offsets")
        super().send_offsets_to_transaction(*arguments, **options)

    def commit_transaction(self, *arguments: Any, **options: Any) -> None:
        _Gate.pass_by("commit")
        super().commit_transaction(*arguments, **options)
        _Gate.pass_by("committed")


def main() -> None:
    from epochfence.cli.main import main as epochfence
    from epochfence.engine import worker

    _, _Gate.point, path, *options = sys.argv
    _Gate.path = Path(path)
    worker.Consumer = _HeldConsumer  # type: ignore[misc]
    worker.Producer = _HeldProducer  # type: ignore[misc]
    sys.argv = ["epochfence", "run", *options]
    epochfence()


if __name__ == "__main__":
    main()
