from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catena.errors import ConfigError
from catena.loadtest.scenario import Scenario, load_scenario, parse_scenario

EXAMPLES = Path(__file__).resolve().parents[2] / "deploy" / "loadtest"


def scenario(**values: Any) -> Scenario:
    return parse_scenario({"name": "test", **values}, "test.toml")


@pytest.mark.parametrize("file", sorted(path.name for path in EXAMPLES.glob("*.toml")))
def test_the_examples_are_sound_and_have_the_name_of_their_file(file: str) -> None:
    assert load_scenario(EXAMPLES / file).name == file.removesuffix(".toml")


def test_the_issues_own_scenario_is_among_them() -> None:
    wanted = load_scenario(EXAMPLES / "kill-one.toml")
    assert (wanted.load.duration_s, wanted.stack.meta, wanted.stack.objects) == (600, "postgres", "s3")
    assert wanted.stack.pipeline
    assert wanted.audit
    assert wanted.verify == "records"
    assert [(event.action, event.at_s(600)) for event in wanted.events] == [("kill", 300.0)]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"lode": {}}, "unknown field `lode`"),
        ({"stack": {"nodes": 0}}, "`stack.nodes`"),
        ({"stack": {"meta": "mysql"}}, "stack.meta: 'mysql' is not sqlite, postgres or an address"),
        ({"stack": {"objects": "memory:"}}, "stack.objects: nodes are processes"),
        ({"stack": {"settings": {"nosuch.thing": 1}}}, "stack.settings: Object contains unknown field `nosuch`"),
        ({"stack": {"settings": {"http.port": "x"}}}, "`http.port`"),
        ({"stack": {"settings": {"node.roles": "sing"}}}, "node.roles: there is no role 'sing'"),
        ({"stack": {"settings": {"http": 1, "http.port": 1}}}, "http is a setting"),
        ({"kafka": {"compression": "rar"}}, "`kafka.compression`: it is one of gzip, lz4, none, snappy, zstd"),
        ({"verify": "all"}, "`verify`: it is one of offsets, records"),
        ({"load": {"rate_mb_s": -1}}, "`load.rate_mb_s`"),
        ({"load": {"record_bytes": 63}}, "`load.record_bytes`"),
        ({"name": "Has Spaces"}, "`name`"),
        ({"topics": []}, "`topics`"),
        ({"topics": [{"name": "a"}, {"name": "a"}]}, "two have the same name"),
        ({"kafka": {"producers": 0}}, "kafka.producers and http.producers"),
        ({"http": {"producers": 1, "records_per_request": 10_000}}, "http.records_per_request"),
        ({"stack": {"meta": "postgres://me:hidden@db/x"}}, "stack.meta: a secret does not belong here"),
        ({"stack": {"objects": "s3://b?secret_access_key=x"}}, "stack.objects: a secret"),
        ({"stack": {"meta": "postgres://db/x?sslpassword=y"}}, "stack.meta: a secret"),
        ({"stack": {"settings": {"http.token": "x" * 20}}}, "stack.settings.http.token: a secret"),
        ({"stack": {"meta": "postgresql://[x"}}, "stack.meta: it is no address"),
        ({"verify": "records", "load": {"rate_mb_s": 9_000, "duration_s": 80_000}}, "too many to be read back"),
        ({"load": {"capacity": "find"}, "events": [{"at": "5s", "kill": "node-0"}]}, "events"),
    ],
)
def test_what_can_not_be_is_refused_by_name(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"scenario test.toml: .*{said.replace('[', '.')}"):
        scenario(**values)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"at": "50%"}, "exactly one of"),
        ({"at": "50%", "kill": "node-0", "stop": "node-0"}, "exactly one of"),
        ({"at": "50%", "kill": "node-0", "resume_after_s": 3}, "only what was stopped is resumed"),
        ({"at": "50%", "stop": "node-0", "restart_after_s": 3}, "what was stopped is not gone"),
        ({"at": "50%", "kill": "node-7"}, "there is no 'node-7', only node-0"),
        ({"at": "50%", "kill": "pipeline"}, "there is no 'pipeline'"),
        ({"at": "110%", "kill": "node-0"}, "is not a time within the duration"),
        ({"at": "soon", "kill": "node-0"}, "is not a time within the duration"),
        ({"at": "xs", "kill": "node-0"}, "is not a time within the duration"),
        ({"at": "21s", "kill": "node-0"}, "is not a time within the duration"),
    ],
)
def test_events_are_checked(event: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scenario(load={"duration_s": 20}, events=[event])


def test_an_event_is_at_a_share_of_the_duration_or_at_a_second() -> None:
    found = scenario(
        load={"duration_s": 20}, events=[{"at": "25%", "kill": "node-0"}, {"at": "7.5s", "stop": "node-0"}]
    ).events
    assert [(event.action, event.target, event.at_s(20)) for event in found] == [
        ("kill", "node-0", 5.0),
        ("stop", "node-0", 7.5),
    ]


def test_changes_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[load]\nrate_mb_s = 1\n")
    changes = ["load.rate_mb_s=2.5", "stack.meta=postgres", "stack.settings.diskless.writer.uploads_in_flight=2"]
    found = load_scenario(file, changes)
    assert found.name == "mine"
    assert found.load.rate_mb_s == 2.5
    assert found.stack.meta == "postgres"
    assert found.stack.settings == {"diskless.writer.uploads_in_flight": 2}


@pytest.mark.parametrize("change", ["load.rate_mb_s", "=5", "name.deeper=1"])
def test_a_change_that_changes_nothing_is_refused(tmp_path: Path, change: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n')
    with pytest.raises(ConfigError, match="option --set"):
        load_scenario(file, [change])


def test_a_file_that_is_not_there_or_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: No such file"):
        load_scenario(tmp_path / "gone.toml")
    (tmp_path / "bad.toml").write_text("= 5")
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        load_scenario(tmp_path / "bad.toml")


def test_shares_follow_who_produces() -> None:
    assert scenario().shares == {"kafka": 1.0, "http": 0.0}
    assert scenario(kafka={"producers": 0}, http={"producers": 1}).shares == {"kafka": 0.0, "http": 1.0}
    assert scenario(http={"producers": 1, "share": 0.25}).shares == {"kafka": 0.75, "http": 0.25}


def test_places_are_all_partitions_in_their_order() -> None:
    found = scenario(topics=[{"name": "b", "partitions": 2}, {"name": "a"}])
    assert found.places == [("b", 0), ("b", 1), ("a", 0)]
