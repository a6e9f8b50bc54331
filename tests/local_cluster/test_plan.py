"""What is said is completed, held against what is there, and turned into servers and settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catena.errors import ConfigError
from catena.local_cluster.plan import Plan, check_fits, choose_stores, completed, roles_of, wrong_roles

DATA = Path("d")
KEPT = Plan(3, ("a", "b"), 9092, "postgres://u:secret@host/db", None, "/file.toml")


def test_what_is_not_said_has_a_default() -> None:
    assert completed(Plan()) == Plan(3, (), 9092, roles=())
    said = Plan(2, ("a",), 0, "sqlite", "s3", "f", ("write", "read"))
    assert completed(said) == said


@pytest.mark.parametrize("asked", [Plan(), Plan(3), Plan(racks=("a", "b"), base_port=9092), KEPT])
def test_what_is_so_already_may_be_said_again(asked: Plan) -> None:
    check_fits(asked, KEPT, DATA)


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        (Plan(4), "option --nodes: the cluster in d was started with 3; `catena cluster down` ends it"),
        (Plan(racks=("a",)), "option --racks: the cluster in d was started with a,b;"),
        (Plan(racks=()), "option --racks: the cluster in d was started with a,b;"),
        (Plan(base_port=0), "option --base-port: the cluster in d was started with 9092;"),
        (Plan(meta="postgres"), "option --meta: the cluster in d was started with another one;"),
        (Plan(objects="s3"), "option --objects: the cluster in d was started without it;"),
        (Plan(config="/other.toml"), r"option --config: the cluster in d was started with /file\.toml;"),
    ],
)
def test_what_is_not_so_is_refused_by_its_name(asked: Plan, refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        check_fits(asked, KEPT, DATA)


def test_racks_where_there_are_none() -> None:
    with pytest.raises(ConfigError, match="--racks: the cluster in d was started without it"):
        check_fits(Plan(racks=("a",)), completed(Plan()), DATA)


def test_roles_are_given_in_turn() -> None:
    roles = ("write", "read", "write+read")
    assert [roles_of(roles, number) for number in range(4)] == [("write",), ("read",), ("write", "read"), ("write",)]
    assert roles_of((), 1) == ()
    with pytest.raises(ConfigError, match="--roles: the cluster in d was started with write,read;"):
        check_fits(Plan(roles=("write",)), completed(Plan(2, roles=("write", "read"))), DATA)


@pytest.mark.parametrize(
    ("roles", "nodes", "problem"),
    [
        (("write", "read"), 2, ""),
        (("write+read",), 1, ""),
        (("read+write", "read"), 1, ""),
        (("broker",), 3, "'broker' is not write, read or write+read"),
        (("write+write",), 3, "'write+write' is not write, read or write+read"),
        (("",), 3, "'' is not write, read or write+read"),
        (("write", "read"), 1, "no node would read: roles are given to the nodes in turn, and there is 1"),
        (("read",), 3, "no node would write: roles are given to the nodes in turn, and there are 3"),
    ],
)
def test_somebody_has_to_write_and_somebody_to_read(roles: tuple[str, ...], nodes: int, problem: str) -> None:
    assert wrong_roles(roles, nodes) == problem
    if problem:
        with pytest.raises(ConfigError, match=f"option --roles: {re.escape(problem)}"):
            completed(Plan(nodes, roles=roles))


def test_stores() -> None:
    assert choose_stores(None, None) == ((), {})
    assert choose_stores("postgres", "s3") == (("postgres", "s3"), {})
    assert choose_stores("sqlite", "folder") == ((), {"CATENA_META": "", "CATENA_OBJECTS": ""})
    assert choose_stores("objects:", "s3://b") == ((), {"CATENA_META": "objects:", "CATENA_OBJECTS": "s3://b"})
    with pytest.raises(ConfigError, match="--meta: nodes are processes"):
        choose_stores("memory:", None)
    with pytest.raises(ConfigError, match="--objects: 'gcs' is not folder, s3 or an address"):
        choose_stores(None, "gcs")
