"""Text of strangers on a terminal: nothing in it may move the cursor, change a colour or hide."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epochfence.clients.printable import printable, printable_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("order-7 für Ämter", "order-7 für Ämter"),
        ("[red]no markup[/red]", "[red]no markup[/red]"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\rc\td\0", "a\\nb\\rc\\td\\x00"),
        ("\x9b2J", "\\x9b2J"),
        ("safe\u202egnp.exe", "safe\\u202egnp.exe"),
        ("\u2028\ufeff\u200b", "\\u2028\\ufeff\\u200b"),
    ],
)
def test_what_has_no_shape_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text())
def test_only_what_has_a_shape_is_left(text: str) -> None:
    assert printable(text).isprintable()


@given(st.text())
def test_json_stays_the_same_to_a_program_and_has_nothing_for_a_terminal_to_obey(text: str) -> None:
    line = json.dumps({"call_id": text + "\x9b\x7f\u202e\u2069"}, ensure_ascii=False)
    shown = printable_json(line)
    assert json.loads(shown) == json.loads(line)
    assert not {c for c in shown if unicodedata.category(c) in ("Cc", "Zl", "Zp")}
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
