"""A whole cluster in one thread, with virtual time and every fault that a seed draws; see `python -m sim --help`.

    scenario      what a seed turns on: commit way, topics, clients, fault rates, targeted crash points
    loop          virtual time, seeded order of what is ready, processes that die and freeze
    chaos         who is struck at which named step or await, and a count of it
    stores        latency, lost answers, late effects; `steps` names every write
    machine       one process at a time, and calls into it from outside
    cluster       the product's own `Node`s on these machines and stores
    workload      writers, readers, fencers, reconfigurers, trimmers, outrunners, a deleter, made of `clients`' calls
    leases        clients of sessions: at most one of them has the lease
    history       what each client asked and was told, in order
    checker       what the history may not contain; `invariants`: what the stored state may not look like
    trial         one run and its verdict; `run` does it for a seed
    mutations     deliberate bugs, each of which the above must catch

The same with jobs of the pipeline beside the nodes, in bursts an hour apart, since drivers may sleep for so long:

    pipeline_scenario, pipeline_steps, pipeline_run, pipeline_mutations   as those above
    pipeline_cluster   drivers on machines of their own: the product's `TierPass`, `vacuum` and `audit`, tasks included
    pipeline_workload  the clients of the log, and drivers that race, die and sleep; audits beside them and in the end
    pipeline_retention nodes that trim by the topics' configs

The same for consumer groups and their coordinators, on the same loop, chaos, stores and machines:

    group_scenario, group_steps, group_cluster, group_history     as those above
    group_workload  a storm and healing, or a calm and one incident; made of `group_clients` and of `group_members`,
                    which are classic (`group_classic_members`) or speak the consumer protocol (`group_consumers`)
    group_checker, group_invariants, group_run, group_mutations   as those above

Everything above `catena.runtime` is the code that runs in production. The same seed gives the same bytes.
"""
