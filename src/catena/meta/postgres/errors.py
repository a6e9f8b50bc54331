"""What a failure of PostgreSQL means to a caller, by its SQLSTATE.

An ERROR that the server sent has rolled back the statement, so nothing was applied. But a server that says good-bye, or
a connection that just ends, leaves open whether the commit had been reached.
"""

from __future__ import annotations

from catena.errors import CatenaError, Corrupt, OutcomeUnknown, StoreFull, StoreRefused, StoreUnavailable


class Undone(Exception):
    """PostgreSQL has rolled the statement back because of others; it may be sent again."""


class SweepFirst(Exception):
    """A record belongs to a session that has expired; sweep, and send the statement again."""


class SessionGone(Exception):
    """The session that the statement was for is gone."""


_OWN = {"CT001": SweepFirst, "CT002": SessionGone, "40001": Undone, "40P01": Undone}

_KINDS: dict[str, tuple[type[CatenaError], str]] = {
    "08": (OutcomeUnknown, "the connection to PostgreSQL was lost"),
    "57P01": (OutcomeUnknown, "PostgreSQL was shut down"),
    "57P02": (OutcomeUnknown, "PostgreSQL crashed"),
    "57P05": (OutcomeUnknown, "PostgreSQL ended the session"),
    "53100": (StoreFull, "PostgreSQL has no space left"),
    "XX001": (Corrupt, "PostgreSQL found its data damaged"),
    "XX002": (Corrupt, "PostgreSQL found an index damaged"),
    "28": (StoreRefused, "PostgreSQL does not let us in; check user and password"),
    "3D": (StoreRefused, "PostgreSQL has no such database; create it"),
    "42501": (StoreRefused, "PostgreSQL does not let us do that; grant the privileges"),
}


def meaning(sqlstate: str | None, message: str) -> Exception:
    """What to raise for an error that the server sent."""
    code = sqlstate or ""
    if code in _OWN:
        return _OWN[code](message)
    kind, explanation = _KINDS.get(code) or _KINDS.get(code[:2]) or (StoreUnavailable, "PostgreSQL failed")
    return kind(f"{explanation} ({code} {message})")
