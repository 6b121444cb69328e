"""The protocol, pure: no clock, no randomness, no I/O, the standard library only.

`admission` turns away what touches no record, `fold` decides everything else, `forgetting` says when a closed call
is forgotten, `invariants` states what must hold after every step. The same code runs in the processor, on the
command line, in the simulator and in an audit.
"""
