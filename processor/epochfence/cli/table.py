"""`epochfence table`: the epoch table as it stands."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from epochfence.broker import find_cluster
from epochfence.cli._lines import (
    LINE_CELLS,
    STATUS_STYLES,
    UNSETTLED_STYLE,
    Cell,
    Lines,
    cropped,
    moment,
    notify,
    size,
)
from epochfence.clients.printable import printable
from epochfence.clients.table import CallInTable, Standing, TablePartition, read_call, read_table, standing_of
from epochfence.engine.process.logs import configure_logs
from epochfence.errors import EpochfenceError, UsageError
from epochfence.protocol.records import CallRecord
from epochfence.protocol.vocabulary import Status
from epochfence.settings import load_settings
from epochfence.wire.jsonl import to_json

_STATUSES = tuple(status for status in Status if status is not Status.UNRECOGNIZED)
_PARTITION, _SEQ, _CALL, _STANDS, _COMMITTED, _ALARM = 3, 6, 24, 15, 18, 9
_TOOL = LINE_CELLS - (_PARTITION + _SEQ + _CALL + _STANDS + _COMMITTED + _ALARM + 6)


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("table", epilog="Example: epochfence table --unsettled")(table)


def table(
    call_id: Annotated[str | None, typer.Argument(help="Print all that the table says of this call.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="S", help=f"Only calls of this status: {', '.join(_STATUSES)}.")
    ] = None,
    unsettled: Annotated[
        bool, typer.Option("--unsettled", help="Only calls whose effect may contradict their commit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each call whole, as a line of JSON.")] = False,
    bootstrap_servers: Annotated[
        str | None, typer.Option(help="host:port of the cluster. Default: as in the settings, else the local broker.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="What every topic's name begins with. Default: as in the settings.")
    ] = None,
) -> None:
    """Print the calls in the epoch table as it stands, by partition, the one that was changed last at the end.

    The last lines count the calls of the whole table by status, and say at which seq each partition's table stands.
    Closed calls are forgotten after a while (retention_ms). Exit code 1 for a call that is not in the table.
    """
    wanted = _wanted(status, unsettled)
    if call_id is not None and wanted is not None:
        raise UsageError("one call is asked for, so --status and --unsettled have nothing to choose from")
    settings = load_settings(bootstrap_servers=bootstrap_servers, topic_prefix=prefix)
    bootstrap = find_cluster(settings)
    configure_logs()
    lines = Lines()
    if call_id is None:
        _print_table(lines, read_table(settings, bootstrap, wanted=wanted, notify=notify), as_json)
        return
    found = read_call(settings, bootstrap, call_id, notify=notify)
    if found is None:
        raise EpochfenceError(
            f"there is no call {call_id!r} in {settings.topic_prefix}epoch-table: it was never opened, or "
            "it is closed and forgotten. `epochfence decisions --call` has its whole story"
        )
    if as_json:
        lines.json(_json(found))
    else:
        _print_call(lines, found)


def _wanted(status: str | None, unsettled: bool) -> Callable[[CallRecord], bool] | None:
    if status is not None and status.upper() not in _STATUSES:
        raise UsageError(f"--status is one of {', '.join(_STATUSES)}")
    if status is None:
        return (lambda record: record.unsettled) if unsettled else None
    chosen = Status(status.upper())
    return lambda record: record.status is chosen and (record.unsettled or not unsettled)


def _json(call: CallInTable) -> bytes:
    values = {"type": "call_record", "partition": call.partition, **to_json(call.record)}
    return json.dumps(values, ensure_ascii=False).encode() + b"\n"


def _print_table(lines: Lines, partitions: Iterable[TablePartition], as_json: bool) -> None:
    standings: Counter[Standing] = Counter()
    stands_at: list[str] = []
    for partition in partitions:
        if not as_json and not stands_at:  # not before the cluster has answered
            lines.row(_header())
        for record in partition.calls():
            call = CallInTable(partition.number, record)
            if as_json:
                lines.json(_json(call))
            else:
                lines.row(call_cells(call))
                standings[standing_of(record)] += 1
        standings += partition.others()
        stands_at.append(_stands_at(partition))
    if not as_json:
        for line in summary(standings, stands_at):
            lines.text(line)


def _stands_at(partition: TablePartition) -> str:
    if partition.checkpoint is not None:
        return f"{partition.number}: {partition.checkpoint.seq}"
    if partition.has_calls:
        notify(f"the table of partition {partition.number} has no checkpoint: it is being rebuilt, and may lack calls")
        return f"{partition.number}: being rebuilt"
    return f"{partition.number}: nothing decided"


def summary(standings: Counter[Standing], stands_at: list[str]) -> list[str]:
    """The last lines: the whole table in numbers."""
    by_status = {status: sum(n for s, n in standings.items() if s.status is status) for status in _STATUSES}
    unsettled = sum(n for standing, n in standings.items() if standing.unsettled)
    total = standings.total()
    counted = ", ".join(f"{count:,} {status}" for status, count in by_status.items() if count)
    return [
        f"{total:,} call{'' if total == 1 else 's'}"
        + (f": {counted}" if counted else "")
        + f"; {unsettled:,} unsettled",
        f"seq by partition: {', '.join(stands_at)}",
    ]


def _header() -> list[Cell]:
    return [
        Cell("P", _PARTITION, "bold", right=True),
        Cell("SEQ", _SEQ, "bold", right=True),
        Cell("CALL", _CALL, "bold"),
        Cell("LIVE, STATUS", _STANDS, "bold"),
        Cell("COMMITTED", _COMMITTED, "bold"),
        Cell("ALARM", _ALARM, "bold"),
        Cell("TOOL", style="bold"),
    ]


def call_cells(call: CallInTable) -> list[Cell]:
    """The columns of a call's line."""
    record = call.record
    numbers = [Cell(str(call.partition), _PARTITION, right=True), Cell(str(record.seq), _SEQ, right=True)]
    outgrown = sum(max(0, len(cell.text) - cell.width) for cell in numbers)
    return [
        *numbers,
        Cell(cropped(record.call_id, _CALL - outgrown), _CALL - outgrown),
        Cell(f"{record.live_epoch:>2} {record.status}", _STANDS, STATUS_STYLES.get(record.status, "")),
        Cell(_committed(record), _COMMITTED),
        Cell(_alarm(record), _ALARM, UNSETTLED_STYLE),
        Cell(cropped(record.tool, _TOOL)),
    ]


def _committed(record: CallRecord) -> str:
    if record.committed_epoch is None:
        return "-"
    return f"{record.committed_epoch:>2} {record.committed_by} {record.committed_outcome}"


def _alarm(record: CallRecord) -> str:
    if record.unsettled:
        return "UNSETTLED"
    return "ESCALATED" if record.status is Status.ESCALATED else ""


_BODIES = frozenset({"arguments", "evidence"})
_NAME_CELLS = 22


def _print_call(lines: Lines, call: CallInTable) -> None:
    lines.row(_field("partition", str(call.partition)))
    values = to_json(call.record)
    for name, value in values.items():
        lines.row(_field(name, _shown(name, value, getattr(call.record, name)), _style(name, call.record)))


def _field(name: str, shown: str, style: str = "") -> list[Cell]:
    return [Cell(name, _NAME_CELLS, "bold"), Cell(shown, style=style)]


def _style(name: str, record: CallRecord) -> str:
    if name == "status":
        return STATUS_STYLES.get(record.status, "")
    return UNSETTLED_STYLE if name == "unsettled" and record.unsettled else ""


def _shown(name: str, value: Any, raw: Any) -> str:
    if name in _BODIES:
        return size(raw)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith(("at_ms", "since_ms")):
        return f"{value} ({moment(value)})"
    if name == "remembered_orphans":
        return ", ".join(f"{orphan['outcome']} {orphan['execution_digest']}" for orphan in value) or "none"
    return printable(str(value)) if value != "" else "(empty)"
