"""A single-node Apache Kafka for one machine: started and stopped by the program, from jars that Maven resolves.

It is a real broker, so that what holds here holds on a cluster: librdkafka's mock broker shows aborted records to a
read_committed reader and proves nothing about exactly-once. It is for a laptop and for tests: one node, no replica.
"""

from epochfence.broker.cluster import ProvidedCluster, find_cluster, provide_cluster
from epochfence.broker.docker import DockerBroker, pinned_image
from epochfence.broker.local import LocalBroker, RunningBroker, default_directory

__all__ = [
    "DockerBroker",
    "LocalBroker",
    "ProvidedCluster",
    "RunningBroker",
    "default_directory",
    "find_cluster",
    "pinned_image",
    "provide_cluster",
]
