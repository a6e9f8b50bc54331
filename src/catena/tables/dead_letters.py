"""The table beside a table: records that are not what the table's schema says, with the reason. Each is there once.

Two tables can't be committed at once. So the table itself decides, and the other one follows:

    1. tasks write files of both                                 crash: files that nothing refers to
    2. put the list of the dead letters' files, by a number      crash: a list that nothing refers to
    3. commit the table: files, progress, and that number        crash: the number says what is still to be done
    4. commit the dead letters: the files of that list, and the same number

Whoever finds that the two tables have other numbers does step 4 before anything else. There is at most one list that is
open, since no table commits another one before. Step 4 is refused unless the number before is the one that the list
names: so a driver that slept can't do it again.
"""

from __future__ import annotations

import msgspec

from catena.errors import Conflict, Contended, Corrupt, ObjectMissing, OutcomeUnknown, StaleView
from catena.objects.base import ObjectStore
from catena.runtime import Entropy
from catena.tables.committer import Change, Committer, DataFile, TableState
from catena.types import ABSENT

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


async def settle(objects: ObjectStore, prefix: str, state: TableState, letters: Committer) -> bool:
    """Do what the table's number says is still to be done; whether there was something."""
    number = state.guards.letters
    if not number:
        return False
    for _ in range(MAX_TRIES):
        now = await letters.load()
        if now is None:
            raise Corrupt(f"table {letters.uri} is gone, and dead letters are to be put into it: number {number:016x}")
        if now.guards.letters == number:
            return False
        found = await _get_list(objects, prefix, number)
        if now.guards.letters != found.before:
            return False  # another has done this, and more since: the state is old, and its next commit is refused
        try:
            await letters.commit(now, Change(added=found.files, progress=found.progress, letters=number))
            return True
        except StaleView:
            continue  # by another who was faster, or by upkeep
    raise Contended(f"table {letters.name} is changed by others all the time")


async def _get_list(objects: ObjectStore, prefix: str, number: int) -> LettersList:
    key = list_key(prefix, number)
    try:
        return msgspec.json.decode((await objects.get(key)).data, type=LettersList)
    except ObjectMissing:
        raise Corrupt(f"object {key} is gone: it lists dead letters that are not in their table yet") from None
    except msgspec.MsgspecError as error:
        raise Corrupt(f"object {key} can't be read: {error}") from None
