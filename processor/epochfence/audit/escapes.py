"""Text that strangers wrote, made safe for a page and for a diagram."""

from html import escape


def plain(text: str) -> str:
    """Everything escaped that has no shape of its own: controls, direction marks, line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str, characters: int) -> str:
    """At most so many characters, `…` where some are left out."""
    shown = plain(text)
    return shown if len(shown) <= characters else shown[: characters - 1] + "…"


def html(text: str) -> str:
    """As text or an attribute's value in a page."""
    return escape(plain(text), quote=True)


def mermaid(text: str) -> str:
    """As text in a Mermaid diagram: what could be syntax becomes a character's number."""
    return "".join(c if c.isalnum() or c in " _.,()-?" else f"#{ord(c)};" for c in plain(text))
