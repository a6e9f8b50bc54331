"""Topics as tables: Delta or Iceberg, kept by the pipeline where a topic's config says table.enable.

    configs -> plan: ranges from the table's own progress up to the tail    driver, pure and on the meta store
            -> decode, write Parquet files                                  tasks, anywhere
            -> files and progress in one commit of the table                driver

**Exactly once.** How far a table is, its own metadata says, in the same commit as the files that bring it there. A
commit is refused if the table has moved since it was planned. So a driver that dies leaves files that nothing refers
to, and one that loses a race plans anew. See `committer`, and `dead_letters` for the table beside it.

    settings, columns, planning    pure
    values/                        what is in a record's value, to columns
    committer, delta, iceberg      one contract, two formats
    tasks/                         what tasks do
    building, upkeep               what drivers do
"""
