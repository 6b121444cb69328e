"""What those who talk to the processor use: they send events, and read decisions and the table, committed only."""
