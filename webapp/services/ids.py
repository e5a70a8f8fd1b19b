"""Ids of rows. Random, so that nothing can be told from one; never the check that keeps somebody out."""

from __future__ import annotations

import secrets
import string

ID_CHARACTERS = 12
_ALPHABET = string.ascii_lowercase + string.digits


def new_id() -> str:
    """12 of a-z and 0-9 (62 bits): fits into every name that an engine takes."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(ID_CHARACTERS))
