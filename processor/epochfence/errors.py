"""Errors, typed by whose fault they are. What a *sender* did wrong is a decision, never one of these.

Each class has the exit code that the command line gives it (docs/cli.md). The message is for a person: it names
the topic, partition and offset where there is one, and what to do next.
"""

from typing import ClassVar


class EpochfenceError(Exception):
    """Anything that this program says to a person in one line."""

    exit_code: ClassVar[int] = 1


class UsageError(EpochfenceError):
    """The caller's fault: a wrong option, setting, topic or file."""

    exit_code: ClassVar[int] = 2


class ClusterError(EpochfenceError):
    """The cluster does not answer, or did not say whether it did what it was asked."""

    exit_code: ClassVar[int] = 3


class LogError(EpochfenceError):
    """The log contradicts itself, or is not the log that was decided before. Nothing was written."""

    exit_code: ClassVar[int] = 4


class FencedError(EpochfenceError):
    """Another process has this one's slot, or its place in the group. It must leave."""

    exit_code: ClassVar[int] = 5
