from __future__ import annotations

import pytest

from catena.cli.pipeline_options import which_of
from catena.errors import ConfigError
from catena.jobs import Which


def test_a_partition_is_one_of_a_topic() -> None:
    assert which_of("t", 3) == Which("t", 3)
    assert which_of(None, None) == Which()
    with pytest.raises(ConfigError, match="option --partition: say of which topic, with --topic"):
        which_of(None, 3)
