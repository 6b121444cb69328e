"""The processor as processes: a worker slot, its start, its watchdogs' voice, and who keeps several of them running."""
