"""The chain: two running SHA-256 values over what was decided and what it answers (protocol, *Checkpoint*)."""

from hashlib import sha256

from epochfence.protocol.decisions import Chain

START = Chain(bytes(32), bytes(32))


class RunningChain:
    """The chain of one partition. `head` is as of the last transaction; what was added since waits for `next_head`."""

    def __init__(self, head: Chain = START) -> None:
        self.head = head
        self._decisions: list[bytes] = []
        self._inputs: list[bytes] = []

    def add_decision(self, body: bytes) -> None:
        """A decision's Avro bytes, with decided_at_ms as zero and checkpoint as null."""
        self._decisions.append(body)

    def add_input(self, topic: bytes, offset: int, key: bytes | None, value: bytes | None) -> None:
        """The record that the decision answers: topic in UTF-8, offset as 8 bytes big-endian, key, value."""
        self._inputs += (topic, offset.to_bytes(8, "big"), key or b"", value or b"")

    def next_head(self) -> Chain:
        """The head with everything that was added since the last transaction."""
        return Chain(
            sha256(self.head.decisions + b"".join(self._decisions)).digest(),
            sha256(self.head.inputs + b"".join(self._inputs)).digest(),
        )

    def commit(self, head: Chain) -> None:
        """The transaction that ended at this head is committed."""
        self.head = head
        self.undo()

    def undo(self) -> None:
        """Forget what was added since the last transaction."""
        self._decisions.clear()
        self._inputs.clear()
