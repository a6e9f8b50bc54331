from __future__ import annotations

import importlib.util

from tests.conftest import cannot_have


def test_what_columns_are_made_of_is_installed() -> None:
    """Without it the other files of this folder are left out, and this line says so."""
    if importlib.util.find_spec("pyarrow") is None:
        cannot_have("spark", "pyarrow is not installed")
