"""Text of strangers, such as file names in an image: shown as it is, but never obeyed."""

from __future__ import annotations

import unicodedata

_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that a terminal or a browser acts on: control, direction, half a character, line ends."""


def plain(text: str, *, keep: str = "") -> str:
    r"""The text with everything that a terminal would act on written as an escape, such as `\x1b`.

    Args:
        text: of anybody.
        keep: characters that stay, such as the line ends of a message of our own.
    """
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _OBEYED and char not in keep else char
        for char in text
    )
