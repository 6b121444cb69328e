"""The story of call 7, told twice on one cluster: by a last writer, and with the fence."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from epochfence.audit.history import ClusterArchive, read_decisions
from epochfence.audit.proof import prove
from epochfence.demo.journal import Journal, Step
from epochfence.demo.participants import Participant, Scene
from epochfence.demo.roles import (
    IN_TIME,
    LATE,
    FencedCompensator,
    FencedPlanner,
    FencedTool,
    LastWriter,
    NaiveCompensator,
    NaivePlanner,
    NaiveTool,
    RecordKeeper,
)
from epochfence.demo.stage import Processor
from epochfence.demo.verdict import Evidence
from epochfence.demo.world import Sight, World
from epochfence.engine.topics.specs import load_topic_specs
from epochfence.errors import LogError
from epochfence.protocol.decisions import Decision
from epochfence.settings import Settings

_SCENE_TIMEOUT_S = 45.0
_PARTITIONS = load_topic_specs()["decisions"].partitions

Show = Callable[[Step], None]


@dataclass(frozen=True)
class FencedHalf:
    """What the participants saw of it; the rest is in the topics."""

    in_time: Sight
    late: Sight


def naive_half(settings: Settings, bootstrap: str, show: Show) -> Sight:
    """Call 7, where everyone acts on what was asked and the record's last writer wins. No processor is needed."""
    scene = _scene(settings, bootstrap, show, lambda: None)
    planner = NaivePlanner(scene)
    with _on_stage(planner, NaiveTool(scene), NaiveCompensator(scene), LastWriter(scene)):
        planner.ask(LATE)
        written = _writes(scene, LATE.call_id, 2)
        scene.journal.wait_until(written, "the application to write twice", _SCENE_TIMEOUT_S)
    return scene.world.seen_by(LATE.call_id)


def fenced_half(settings: Settings, bootstrap: str, processor: Processor, show: Show) -> FencedHalf:
    """Call 6 in time, and call 7 with the timing of the naive half; nobody acts before a committed decision."""
    scene = _scene(settings, bootstrap, show, processor.raise_if_gone)
    planner = FencedPlanner(scene)
    with _on_stage(planner, FencedTool(scene), FencedCompensator(scene), RecordKeeper(scene)):
        planner.ask(IN_TIME)
        written = _writes(scene, IN_TIME.call_id, 1)
        scene.journal.wait_until(written, "call 6 to be written down", _SCENE_TIMEOUT_S)
        planner.ask(LATE)
        written = _writes(scene, LATE.call_id, 2)
        scene.journal.wait_until(written, "the late answer to be decided", _SCENE_TIMEOUT_S)
    return FencedHalf(scene.world.seen_by(IN_TIME.call_id), scene.world.seen_by(LATE.call_id))


def gather(settings: Settings, bootstrap: str, naive: Sight, fenced: FencedHalf) -> Evidence:
    """Read the topics of the fenced half back, and prove from them what they prove."""
    archive = ClusterArchive(settings, bootstrap)
    decisions = [
        decision for number in range(archive.facts.partition_count) for decision in _decisions(archive, number)
    ]
    return Evidence(naive, fenced.in_time, fenced.late, decisions, prove(archive))


def _decisions(archive: ClusterArchive, number: int) -> Iterator[Decision]:
    topic = archive.facts.decisions_topic
    for logged in read_decisions(archive, number, archive.partition(number).bounds(topic)):
        if logged.decision is None:
            raise LogError(f"{topic}[{number}]@{logged.offset} is no decision: {logged.wrong}")
        yield logged.decision


def _scene(settings: Settings, bootstrap: str, show: Show, check: Callable[[], None]) -> Scene:
    world = World()
    return Scene(settings, bootstrap, _PARTITIONS, world, Journal(world, show, check))


def _writes(scene: Scene, call_id: str, times: int) -> Callable[[], bool]:
    """Whether the application has come to a conclusion about the call so many times."""

    def seen() -> bool:
        steps = [step for step in scene.journal.steps if step.who == "application" and step.call_id == call_id]
        return len(steps) >= times

    return seen


@contextmanager
def _on_stage(*participants: Participant) -> Iterator[None]:
    try:
        for participant in participants:
            participant.start()
        yield
    finally:
        _leave(participants)


def _leave(participants: Sequence[Participant]) -> None:
    for participant in participants:
        participant.ask_to_leave()
    for participant in participants:
        participant.wait_until_left()
