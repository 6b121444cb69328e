"""Text that strangers wrote, made safe for a terminal.

A call's id is anybody's to choose. Raw, it could move the cursor over the line above, hide in a direction mark, or set
the window's title.
"""

import re

# The characters that JSON leaves as they are and a terminal may obey: DEL, the C1 controls, and marks that have no
# shape of their own but turn or hide what stands beside them.
_UNSEEN_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def printable(text: str) -> str:
    """`text` with everything escaped that has no shape of its own: controls, escapes, direction marks, line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_json(line: str) -> str:
    """The same JSON, with the characters escaped that a terminal may obey. To a program it is equal."""
    return _UNSEEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
