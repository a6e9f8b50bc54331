"""Load tests that another engineer can audit: `catena loadtest`.

    scenario.toml -> stack (stores, nodes, pipeline) -> topics -> hammers, samples, faults
                  -> read back -> summary, report

What a run is and what came of it is in its run directory (`run_folder`), which holds no secret and can be handed on.
What the stores keep, and how their processes are found again, is beside it, in a data folder.
"""
