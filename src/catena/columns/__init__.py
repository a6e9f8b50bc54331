"""Record batches as Arrow columns, and Arrow columns as record batches: many records at a time.

`decode` and `encode` do what `catena.formats.records` does, by the column instead of by the record. Needs pyarrow and
numpy, which come with the extra `spark`; nothing below or beside this package imports it.
"""
