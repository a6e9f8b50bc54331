from __future__ import annotations

import getpass
import json
import os
import platform

from catena.loadtest.environment import snapshot


def test_versions_and_machine_but_nobodys_name_and_no_value_of_a_variable() -> None:
    found = snapshot(
        {"CATENA_HTTP__TOKEN": "a-very-secret-token", "CATENA_META": "postgres://me:hidden@db", "HOME": "x"}
    )
    text = json.dumps(found)
    assert found["packages"]["catena-log"]
    assert found["cpus"] >= found["cpus_usable"] >= 1
    assert found["memory_bytes"] > 1 << 20
    assert found["settings_in_environment"] == ["CATENA_HTTP__TOKEN", "CATENA_META"]
    for secret in ("secret-token", "hidden", os.getcwd()):
        assert secret not in text
    values = [value for value in found.values() if isinstance(value, str)]
    assert platform.node() not in values
    assert getpass.getuser() not in values
