"""What an S3 store answered, named by what the caller must do.

obstore has classes for a few statuses only (and takes 409 for "exists already"), but its messages always give the HTTP
status, the store's error code and, if no answer came, whether the connection was made. So the message decides.
Of a write without a clear answer nothing is known; clear are only answers that come before anything is applied.
"""

from __future__ import annotations

import enum
import re

from obstore.exceptions import PreconditionError

from catena.errors import (
    CatenaError,
    Conflict,
    Corrupt,
    ObjectMissing,
    OutcomeUnknown,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
_EXPLANATION = re.compile(r"<Message>([^<]+)</Message>")
_KIND = re.compile(r"kind: (Connect|Timeout)\b")
_REDIRECTED = "Received redirect"

_FULL = {"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientCapacity"}

_REMEDIES = {
    "NoSuchBucket": "create the bucket, or name another one",
    "InvalidAccessKeyId": "check the access key id",
    "SignatureDoesNotMatch": "check the secret access key",
    "AccessDenied": "allow these credentials to get, put, list and delete objects there",
    "ExpiredToken": "renew the session token",
    "InvalidToken": "renew the session token",
    "RequestTimeTooSkewed": "set the clock of this machine",
    "AuthorizationHeaderMalformed": "check the region",
    "PermanentRedirect": "check the region and the endpoint",
    "NotImplemented": "use a store that has conditional writes",
}
_REMEDIES_BY_STATUS = {
    401: "check the credentials",
    403: "check the credentials, and what they are allowed to do",
    404: "create the bucket, or name another one",
    501: _REMEDIES["NotImplemented"],
}


class Operation(enum.Enum):
    READ = "read"
    LIST = "list"
    PUT = "write"
    DELETE = "delete"


def name_error(error: Exception, operation: Operation, where: str, key: str) -> CatenaError:
    message = str(error)
    status = int(found[1]) if (found := _STATUS.search(message)) else None
    code = found[1] or found[2] if (found := _CODE.search(message)) else None
    failed = f"cannot {operation.value} {where}/{key}: {_describe(message, status, code)}"

    if status == 507 or code in _FULL:
        return StoreFull(f"{failed}; free some space or raise the quota")
    if status == 404 and code != "NoSuchBucket":
        if operation is Operation.READ:
            return ObjectMissing(key)
        if isinstance(error, PreconditionError):
            return Conflict(key)
    if status == 412:
        return Conflict(key)
    if status == 416:
        return Corrupt(f"object {key} ends before the bytes that were asked for")
    if _was_not_applied(message, status, code):
        return StoreUnavailable(failed)
    if code in _REMEDIES or _REDIRECTED in message or (status is not None and 400 <= status < 500) or status == 501:
        remedy = _REMEDIES.get(code or "") or _REMEDIES_BY_STATUS.get(status or 0, "check endpoint, region and bucket")
        return StoreRefused(f"{failed}; {remedy}")
    if operation in (Operation.READ, Operation.LIST):
        return StoreUnavailable(failed)
    return OutcomeUnknown(failed)


def _was_not_applied(message: str, status: int | None, code: str | None) -> bool:
    """Whether the store said that it did nothing this time, or was never reached."""
    if status is None:
        return _kind(message) == "Connect"
    # 409: a conditional write met another one. 503 only with a code of the store: a proxy says it of what it passed on.
    return status in (408, 409, 429) or (status == 503 and code is not None) or code == "RequestTimeout"


def _describe(message: str, status: int | None, code: str | None) -> str:
    if status is not None:
        explanation = f" ({found[1]})" if (found := _EXPLANATION.search(message)) else ""
        return f"the store answered {status} {code or ''}".rstrip() + explanation
    match _kind(message):
        case "Connect":
            return "no connection"
        case "Timeout":
            return "no answer in time"
        case _:
            return message.partition("\n")[0]  # what follows is a dump of the error


def _kind(message: str) -> str | None:
    return found[1] if (found := _KIND.search(message)) else None
