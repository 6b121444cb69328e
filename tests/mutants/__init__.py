"""The production code with one thing wrong, and who notices. `python -m tests.mutants` prints the whole matrix."""
