"""The table beside a table: records that are not what the table's schema says, with the reason. Each is there once.

Two tables can't be committed at once. So the table itself decides, and the other one follows:

    1. tasks write files of both                                 crash: files that nothing refers to
    2. put the list of the dead letters' files, by a number      crash: a list that nothing refers to
    3. commit the table: files, progress, and that number        crash: the number says what is still to be done
    4. commit the dead letters: the files of that list, and the same number

Whoever finds that the two tables have other numbers does step 4 before anything else. There is at most one list that is
open, since no table commits another one before. Step 4 is refused unless the number before is the one that the list
names: so a driver that slept can't do it again.

Where a person has deleted one of the two tables, the numbers fit no more. Then the list that the table names is the one
that is open, as long as the table names it: whoever would have gone on has changed that first. Its files may be gone
with the table of dead letters; those that are left come in.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from catena.errors import Conflict, Contended, Corrupt, ObjectMissing, OutcomeUnknown, StaleView
from catena.objects.base import ObjectStore
from catena.runtime import Entropy
from catena.tables.committer import Change, Committer, DataFile, OpenTable, TableState
from catena.types import ABSENT

log = logging.getLogger(__name__)

NUMBER_BITS = 62
MAX_TRIES = 5


class LettersList(msgspec.Struct, frozen=True):
    before: int
    """The number that both tables had."""
    progress: dict[int, int]
    files: list[DataFile]


def list_key(prefix: str, number: int) -> str:
    return f"{prefix}/_catena/dead-letters/{number:016x}.json"


async def put_list(
    objects: ObjectStore,
    entropy: Entropy,
    prefix: str,
    state: TableState,
    progress: dict[int, int],
    files: list[DataFile],
) -> int:
    """Its number, which nobody else draws."""
    number = int(entropy.hex_id(), 16) >> (128 - NUMBER_BITS) | 1
    body = msgspec.json.encode(LettersList(state.guards.letters, progress, files))
    try:
        await objects.put(list_key(prefix, number), [body], ABSENT)
    except (Conflict, OutcomeUnknown):
        # The name is ours alone: either it is there now, or the commit that names it would be in vain.
        if (await objects.get(list_key(prefix, number))).data != body:
            raise
    return number


async def settle(objects: ObjectStore, opened: OpenTable, state: TableState) -> bool:
    """Do what the table's number says is still to be done; whether there was something."""
    number, letters = state.guards.letters, opened.letters
    if not number:
        return False
    for _ in range(MAX_TRIES):
        now = await letters.load()
        if now is None:
            raise Corrupt(f"table {letters.uri} is gone, and dead letters are to be put into it: number {number:016x}")
        if now.guards.letters == number:
            return False
        if await _has_gone_on(opened.table, number):
            return False  # another has done this, and more since: the state is old, and its next commit is refused
        found = await _get_list(objects, opened.prefix, number)
        files = found.files
        if now.guards.letters != found.before:
            files = await _that_are_there(objects, opened.letters_prefix, found.files)
        try:
            await letters.commit(now, Change(added=files, progress=found.progress, letters=number))
            return True
        except StaleView:
            continue  # by another who was faster, or by upkeep
    raise Contended(f"table {letters.name} is changed by others all the time")


async def _has_gone_on(table: Committer, number: int) -> bool:
    """Asked after the dead letters were loaded: if it has not, they were as they have to be for this number, or one of
    the tables is not the one that it was."""
    state = await table.load()
    return state is None or state.guards.letters != number


async def _that_are_there(objects: ObjectStore, prefix: str, files: Sequence[DataFile]) -> list[DataFile]:
    found = []
    for file in files:
        try:
            await objects.head(f"{prefix}/{file.path}")
            found.append(file)
        except ObjectMissing:
            log.warning("%d dead letters are gone with their file: %s/%s", file.rows, prefix, file.path)
    return found


async def waiting_files(objects: ObjectStore, prefix: str, state: TableState, letters: Committer) -> set[str]:
    """Files that the table's number brings in, and that are not in the table of dead letters yet."""
    number = state.guards.letters
    now = await letters.load()
    if not number or (now is not None and now.guards.letters == number):
        return set()
    return {file.path for file in (await _get_list(objects, prefix, number)).files}


async def _get_list(objects: ObjectStore, prefix: str, number: int) -> LettersList:
    key = list_key(prefix, number)
    try:
        return msgspec.json.decode((await objects.get(key)).data, type=LettersList)
    except ObjectMissing:
        raise Corrupt(f"object {key} is gone: it lists dead letters that are not in their table yet") from None
    except msgspec.MsgspecError as error:
        raise Corrupt(f"object {key} can't be read: {error}") from None
