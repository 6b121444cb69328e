"""Which cluster to use: the one that is named, else the local broker, else a container."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from epochfence.broker.docker import DockerBroker
from epochfence.broker.local import LocalBroker
from epochfence.errors import ClusterError, UsageError
from epochfence.settings import Settings

Progress = Callable[[str], None]
_NAME_ONE = "set EPOCHFENCE_BOOTSTRAP_SERVERS, or bootstrap_servers in epochfence.toml, to the cluster's host:port"


@dataclass(frozen=True)
class ProvidedCluster:
    """A cluster that answers: where it is, and in words how it came to be there."""

    bootstrap_servers: str
    how: str


def find_cluster(settings: Settings) -> str:
    """The bootstrap servers that `settings` name, else those of the local broker if it runs.

    Raises ClusterError that says what to do when there are neither.
    """
    named = settings.bootstrap_servers
    if named:
        return named
    running = LocalBroker().status()
    if running is None:
        raise ClusterError(f"no cluster is named and no local broker runs: `epochfence broker start`, or {_NAME_ONE}")
    return running.bootstrap_servers


@contextmanager
def provide_cluster(settings: Settings, progress: Progress) -> Iterator[ProvidedCluster]:
    """The named cluster, else the local broker, else a container; what was started here is stopped again.

    Raises UsageError that says, for each way, what is missing and how to get it.
    """
    named = settings.bootstrap_servers
    if named:
        yield ProvidedCluster(named, f"the cluster at {named}, as the settings say")
        return
    local = LocalBroker()
    no_local = local.missing()
    if no_local is None:
        try:
            was_running = local.status() is not None
            running = local.start(progress=progress)
        except UsageError as error:  # Maven is here, the jars are not to be had
            no_local = str(error)
        else:
            how = "the local broker, which ran already" if was_running else "a local broker, started for this run"
            try:
                yield ProvidedCluster(running.bootstrap_servers, f"{how} (pid {running.pid})")
            finally:
                if not was_running:
                    local.stop()
            return
    with _container(no_local, progress) as provided:
        yield provided


@contextmanager
def _container(no_local: str, progress: Progress) -> Iterator[ProvidedCluster]:
    broker = DockerBroker()
    no_docker = broker.missing()
    if no_docker is None:
        progress(f"no local broker ({no_local}); starting {broker.image} with Docker")
        try:
            bootstrap_servers = broker.start()
        except UsageError as error:
            no_docker = str(error)
        else:
            try:
                yield ProvidedCluster(bootstrap_servers, f"a container of {broker.image}, started for this run")
            finally:
                broker.stop()
            return
    raise UsageError(
        f"there is no Kafka to run on. One of three is enough. A cluster: {_NAME_ONE}. "
        f"A local broker: {no_local}. Docker: {no_docker}."
    )
