"""Lines from a descriptor, each when it is there: a file, a pipe, a person who types."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from epochfence.clients.line_sending import LINE_MAX_BYTES, LineInput
from epochfence.wire.jsonl import LineError


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):  # the test closed it
            os.close(end)


def test_a_file_gives_its_lines_and_the_last_one_without_a_line_feed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"a\n\n\xff\r\nlast")
    with path.open("rb") as file:
        assert list(LineInput(file.fileno(), lambda: True)) == [b"a", b"", b"\xff\r", b"last"]


def test_an_empty_file_gives_no_line(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    with path.open("rb") as file:
        assert list(LineInput(file.fileno())) == []


def test_a_line_that_comes_in_pieces_is_one_line(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    pieces = [b'{"ty', b'pe"', b':1}\n{"x', b'"']
    busy = iter([*(lambda piece=piece: os.write(writer, piece) for piece in pieces), lambda: os.close(writer)])

    def other_work() -> bool:
        next(busy)()
        return True

    assert [line for line in LineInput(reader, other_work) if line is not None] == [b'{"type":1}', b'{"x"']


def test_quiet_input_lets_other_work_be_done_and_then_waits(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    left = [True, True, False]
    lines = iter(LineInput(reader, lambda: left.pop(0) if left else False))
    assert [next(lines), next(lines)] == [None, None]
    # Now nothing else is to be done: it must wait here, and give the line once there is one.
    timer = threading.Timer(0.05, os.write, (writer, b"typed\n"))
    timer.start()
    assert next(lines) == b"typed"
    timer.join()


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(10 * LINE_MAX_BYTES)
    with path.open("rb") as file:
        lines = iter(LineInput(file.fileno()))
        assert next(lines) == b"first"
        with pytest.raises(LineError, match="longer than 16 MiB"):
            next(lines)
        assert file.seek(0, os.SEEK_CUR) < 2 * LINE_MAX_BYTES
