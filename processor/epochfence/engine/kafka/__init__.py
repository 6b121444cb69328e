"""How librdkafka does it: options, calls, fetching, transactions, reading a log. Knows tasks, and no processes."""
