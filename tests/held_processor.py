"""A processor whose Kafka clients stand still at a chosen point while a file is there: for faults at an exact moment.

As a module it is `epochfence run` with these clients; nothing else of the product is changed:

    python -m tests.held_processor POINT GATE --slot NAME ...

While the file GATE is there, it writes GATE.reached when it comes to POINT, and waits until GATE has gone. The points:

    fetched     records were fetched, and nothing was decided of them
    begin       what was fetched is decided, or some of it, and nothing of that is at the cluster
    offsets     the decisions are at the cluster; the offsets come next
    commit      the offsets are in the transaction; its commit comes next
    committed   the cluster has committed, and the processor does not know it yet
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer

from tests.cluster import Cluster
from tests.processor_process import RunningProcessor

POINTS = ("fetched", "begin", "offsets", "commit", "committed")


class OtherProcessor(RunningProcessor):
    """`epochfence run` by way of a module of ours, which changes one thing and then runs it."""

    def __init__(self, *arguments: Any, module: str, told: list[str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._command = [sys.executable, "-m", module, *told]

    def command(self) -> list[str]:
        """The module, and what it is told."""
        return self._command

    def environment(self) -> dict[str, str]:
        """With this repository, in which the module is."""
        here = super().environment()
        here["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent.parent)
        return here


class HeldProcessor(OtherProcessor):
    """`epochfence run` that is held at `point` when it comes there, after `hold`."""

    def __init__(self, cluster: Cluster, prefix: str, directory: Path, *, point: str, **options: Any) -> None:
        assert point in POINTS
        self.gate = directory / f"{point}.gate"
        told = [point, str(self.gate)]
        super().__init__(cluster, prefix, directory, module="tests.held_processor", told=told, **options)

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
    def begin_transaction(self, *arguments: Any, **options: Any) -> None:
        _Gate.pass_by("begin")
        super().begin_transaction(*arguments, **options)

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
    from epochfence.engine.process import worker

    _, _Gate.point, path, *options = sys.argv
    _Gate.path = Path(path)
    worker.Consumer = _HeldConsumer  # type: ignore[attr-defined]
    worker.Producer = _HeldProducer  # type: ignore[attr-defined]
    sys.argv = ["epochfence", "run", *options]
    epochfence()


if __name__ == "__main__":
    main()
