"""The processor, in four storeys; each may use those below it, and none above.

1. Here: what to do with a partition (merge, decide, chain, checkpoint, undo, recover, watch), without a client in
   sight, so that the same task runs on a log in memory.
2. `kafka/`: how librdkafka does it.
3. `topics/`: the topics themselves.
4. `process/`: a worker slot, its start, and who keeps several of them running.
"""
