"""`epochfence run`: the processor."""

import sys

import typer

from epochfence.broker import find_cluster
from epochfence.engine.process.logs import configure_logs
from epochfence.engine.process.preflight import refuse_unfit_topics
from epochfence.engine.process.supervisor import StopFlag, supervise, worker_command
from epochfence.engine.process.worker import Worker
from epochfence.settings import load_settings


def register(app: typer.Typer) -> None:
    app.command("run")(run)


def run(
    slot: str | None = typer.Option(
        None, help="Name of this run's worker slots; two processes must not have the same."
    ),
    workers: int = typer.Option(1, min=1, max=64, help="Processes, each with a slot of its own: NAME-0, NAME-1, …"),
    bootstrap_servers: str | None = typer.Option(None, help="Where the cluster is."),
    prefix: str | None = typer.Option(None, help="Begins the name of every topic."),
    worker: int | None = typer.Option(None, hidden=True, help="Which worker of several this process is."),
) -> None:
    """Decide: read the four inputs, write one decision for each record, until SIGTERM.

    Prints `ready slot=… partitions=…` on standard output whenever it has its partitions; logs go to standard error,
    one JSON object a line. SIGTERM: what was decided is committed, then it leaves the group.

    Example: epochfence run --slot blue --workers 2
    """
    settings = load_settings(slot=slot, bootstrap_servers=bootstrap_servers, topic_prefix=prefix)
    bootstrap = find_cluster(settings)
    configure_logs()
    stopping = StopFlag()
    if worker is None:
        refuse_unfit_topics(settings, bootstrap)
    if workers > 1:
        slots = [f"{settings.slot}-{number}" for number in range(workers)]
        options = ["--slot", settings.slot, "--bootstrap-servers", bootstrap, "--prefix", settings.topic_prefix]
        code = supervise(slots, lambda name: worker_command([*options, "--worker", name.rpartition("-")[2]]), stopping)
        sys.exit(code)
    Worker(settings, bootstrap, f"{settings.slot}-{worker or 0}", _announce, stopping).run()


def _announce(line: str) -> None:
    print(line, flush=True)
