"""Values as they are."""

from __future__ import annotations

import pyarrow as pa

from catena.tables.columns import VALUE, VALUE_FIELD
from catena.tables.values.base import Decoded


class RawDecoder:
    fields = (VALUE_FIELD,)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return Decoded({VALUE: values}, {})
