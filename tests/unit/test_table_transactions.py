"""How a start completes a table: in one transaction, or in several of which no crash leaves a half that is believed."""

import pytest

from epochfence.engine.chain import START
from epochfence.engine.process.restore import REWRITE_MAX_BYTES, REWRITE_MAX_RECORDS, table_transactions
from epochfence.engine.recovery import TableRewrite
from epochfence.protocol.decisions import Checkpoint, InputPosition
from epochfence.protocol.records import CallRecord
from epochfence.wire.codec import CHECKPOINT_KEY, encode_checkpoint, encode_record
from tests.builders import Log, call

STANDS_AT = Checkpoint(3, (InputPosition("t", "id", 9),), "d", 4, 5, 6, 7, START)
RECORD = Log(call()).record
LARGE = Log(call(arguments=bytes(200_000))).record


def rewrite(record: CallRecord | None, count: int) -> TableRewrite:
    return TableRewrite({f"c{number}": record for number in range(count)}, STANDS_AT)


@pytest.mark.parametrize(
    ("record", "count", "transactions"),
    [
        (RECORD, 0, 1),
        (RECORD, 1, 1),
        (None, 1, 1),
        (RECORD, REWRITE_MAX_RECORDS - 1, 1),
        (RECORD, REWRITE_MAX_RECORDS, 1),
        (RECORD, REWRITE_MAX_RECORDS + 1, 2),
        (None, REWRITE_MAX_RECORDS + 1, 2),
        (RECORD, 2 * REWRITE_MAX_RECORDS, 2),
        (RECORD, 2 * REWRITE_MAX_RECORDS + 1, 3),
        (LARGE, 83, 1),
        (LARGE, 200, 3),
    ],
)
def test_the_checkpoint_is_away_while_the_table_is_only_in_part_there(
    record: CallRecord | None, count: int, transactions: int
) -> None:
    made = list(table_transactions(rewrite(record, count)))
    assert len(made) == transactions
    pairs = [pair for transaction in made for pair in transaction]
    value = None if record is None else encode_record(record)
    wanted: list[tuple[bytes, bytes | None]] = [(f"c{number}".encode(), value) for number in range(count)]
    if transactions > 1:
        wanted.insert(0, (CHECKPOINT_KEY, None))
    assert pairs == [*wanted, (CHECKPOINT_KEY, encode_checkpoint(STANDS_AT))]
    assert all(len(made_of) <= REWRITE_MAX_RECORDS + 1 for made_of in made)
    size_bytes = max(sum(len(key) + len(value or b"") for key, value in transaction) for transaction in made)
    assert size_bytes <= REWRITE_MAX_BYTES + 300_000, "bounded, but for the record that comes last"
