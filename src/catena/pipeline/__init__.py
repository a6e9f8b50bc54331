"""Bulk work on stored bytes: a job plans from the meta store, tasks read and write objects, the job commits.

`work` is how tasks get done, `tasks` what they do, `spark` the one place that knows Spark. A job never sees where its
tasks run, so that the simulator runs the very jobs that Spark runs.
"""
