"""Run a command: open the log, do the work, and turn whatever goes wrong into one line and an exit code.

| code | meaning |
|---|---|
| 0 | done |
| 1 | some of the work failed; the output says which |
| 2 | the command can't be right: usage, settings, a topic or an offset that is not there |
| 3 | a store is in trouble: down, full, refused, damaged |
| 130 | interrupted |
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn, TypeVar

import typer

from catena import errors
from catena.cli.options import Common

if TYPE_CHECKING:
    from catena.config import Settings
    from catena.embedded import Log

T = TypeVar("T")

FAILED = 1
WRONG = 2
TROUBLE = 3
INTERRUPTED = 130

_ADVICE: dict[type[Exception], str] = {
    errors.UnknownTopic: "`catena topic list` shows what there is, `catena topic create NAME` makes one",
    errors.TopicExists: "choose another name, or see it with `catena topic describe NAME`",
    errors.OffsetOutOfRange: "choose an offset in between, `earliest` or `latest`",
    errors.LogSealed: "from Python: `await log.reopen(topic, partition)`",
    errors.BackPressure: "try again in a moment",
    errors.Contended: "try again in a moment",
    errors.StoreUnavailable: "check that the store runs and can be reached",
    errors.OutcomeUnknown: "look whether it is in the log before you do it again",
    errors.Corrupt: "what is damaged has to come from a backup",
    errors.ObjectMissing: "somebody has deleted it, and it has to come from a backup",
}


def run(common: Common, work: Callable[[Log], Awaitable[T]], *, creates: bool = False) -> T:
    """Do the work on the log that the options name; only a command that `creates` makes one where there is none."""
    settings = common.load_settings()
    if not creates:
        require_log(settings)
    return asyncio.run(_open_and(settings, work))


async def _open_and(settings: Settings, work: Callable[[Log], Awaitable[T]]) -> T:
    from catena.embedded import open_log

    async with open_log(settings) as log:
        return await work(log)


def require_log(settings: Settings) -> None:
    """Whoever reads where there is none has the wrong folder, and would leave an empty log behind."""
    if not has_log(settings):
        raise errors.ConfigError(
            f"there is no log in the folder {settings.data!r}: `catena topic create NAME` makes one, "
            "--data DIR names another folder"
        )


def has_log(settings: Settings) -> bool:
    return settings.has_log


@contextmanager
def reporting(common: Common, interrupted: int = INTERRUPTED) -> Iterator[None]:
    """What is raised here, also while results are printed, ends the process; `interrupted` is Ctrl-C's exit code."""
    logging.basicConfig(level=logging.DEBUG if common.debug else logging.CRITICAL)
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise typer.Exit from None  # whoever read our output has had enough
    except KeyboardInterrupt:
        raise typer.Exit(interrupted) from None
    except (errors.CatenaError, OSError) as error:
        _end(common, error, exit_code(error))
    except typer.Exit:
        raise
    except Exception as error:
        _end(common, error, FAILED)


def exit_code(error: Exception) -> int:
    return WRONG if isinstance(error, errors.Rejected) else TROUBLE


def advice_on(error: Exception) -> str:
    """What to do next, where the error itself does not say it."""
    if not isinstance(error, errors.CatenaError | OSError):
        return "this is a bug in Catena; please report it with what --debug shows"
    if isinstance(error, errors.Corrupt) and "backup" in str(error):
        return ""
    return next((advice for kind, advice in _ADVICE.items() if isinstance(error, kind)), "")


def message_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    words = " ".join(str(error).split())
    return words if isinstance(error, errors.CatenaError | OSError) else f"{type(error).__name__}: {words}"


def _end(common: Common, error: Exception, code: int) -> NoReturn:
    if common.debug:
        traceback.print_exception(error)
    message, advice = message_of(error), advice_on(error)
    if code == TROUBLE:
        advice = "; ".join(filter(None, [advice, "`catena doctor` looks closer"]))
    if common.as_json:
        report = {"error": type(error).__name__, "message": message, "advice": advice, "exit_code": code}
        print(json.dumps(report), file=sys.stderr)
    else:
        print("catena: " + "; ".join(filter(None, [message, advice])), file=sys.stderr)
    raise typer.Exit(code)
