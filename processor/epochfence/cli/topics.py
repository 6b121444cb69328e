"""`epochfence topics`: makes the topics of topics/, and names every difference between a cluster and them."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from confluent_kafka.admin import AdminClient

from epochfence.broker import find_cluster
from epochfence.engine.kafka.client_config import admin_config, open_client, reader_config, sender_config
from epochfence.engine.topics.cluster import apply_topics, check_topics
from epochfence.settings import Settings, load_settings

topics = typer.Typer(no_args_is_help=True, help="The topics of this program on a cluster.")

Bootstrap = Annotated[
    str | None,
    typer.Option(help="host:port of the cluster. Default: as in the settings, else the local broker."),
]
Prefix = Annotated[str | None, typer.Option(help="What every topic's name begins with. Default: as in the settings.")]
Partitions = Annotated[
    int | None,
    typer.Option(min=1, max=10_000, help="Of each topic but `schemas`; never changes. Default: as there, else 4."),
]
Replication = Annotated[
    int | None,
    typer.Option(min=1, max=100, help="Copies of each partition. Default: 3 where there are 3 brokers, else 1."),
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.add_typer(topics, name="topics")


@topics.command(epilog="Example: epochfence topics apply --partitions 12")
def apply(
    partitions: Partitions = None,
    replication: Replication = None,
    prefix: Prefix = None,
    bootstrap_servers: Bootstrap = None,
    fix_config: Annotated[
        bool, typer.Option("--fix-config", help="Also set differing Kafka settings where nothing can be lost by it.")
    ] = False,
) -> None:
    """Make the topics and write the schemas that are missing. Topics that are there stay as they are.

    Exit code 1 when differences are left; each is named.
    """
    settings = load_settings(bootstrap_servers=bootstrap_servers, topic_prefix=prefix)
    admin, bootstrap = _connect(settings)
    reader = reader_config(settings, bootstrap)
    done = apply_topics(
        admin,
        sender_config(settings, bootstrap),
        settings.topic_prefix,
        reader_config=reader,
        partitions=partitions,
        replication=replication,
        fix_config=fix_config,
    )
    for line in done or ["nothing to do"]:
        typer.echo(line)
    left = check_topics(admin, reader, settings.topic_prefix, partitions=partitions, replication=replication)
    for difference in left:
        typer.echo(str(difference), err=True)
    raise typer.Exit(code=1 if left else 0)


@topics.command(epilog="Example: epochfence topics check --json")
def check(
    partitions: Partitions = None,
    replication: Replication = None,
    prefix: Prefix = None,
    bootstrap_servers: Bootstrap = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a difference, a line each.")] = False,
) -> None:
    """Name every difference between the cluster and the topics of this program. Exit code 1 when there are any."""
    settings = load_settings(bootstrap_servers=bootstrap_servers, topic_prefix=prefix)
    admin, bootstrap = _connect(settings)
    differences = check_topics(
        admin,
        reader_config(settings, bootstrap),
        settings.topic_prefix,
        partitions=partitions,
        replication=replication,
    )
    for difference in differences:
        typer.echo(json.dumps(asdict(difference)) if as_json else str(difference))
    if not differences and not as_json:
        typer.echo(f"the topics at {bootstrap} are as they should be")
    raise typer.Exit(code=1 if differences else 0)


def _connect(settings: Settings) -> tuple[AdminClient, str]:
    bootstrap = find_cluster(settings)
    return open_client(AdminClient, admin_config(settings, bootstrap)), bootstrap
