"""What a model may be called."""

from __future__ import annotations

from typing import Final

MAX_NAME_BYTES: Final = 255


def valid_model_name(name: str) -> bool:
    """Whether a bundle directory can have this name, so that a model can.

    A name is 1 to 255 bytes of UTF-8 without `/` and NUL, and does not begin with a dot: `.` and
    `..` are not names, and hidden directories are where deployment tools stage their copies. No
    normalisation takes place: two Unicode spellings are two names.
    """
    try:
        size = len(name.encode("utf-8"))
    except UnicodeEncodeError:
        return False
    return 1 <= size <= MAX_NAME_BYTES and not name.startswith(".") and "/" not in name and "\0" not in name
