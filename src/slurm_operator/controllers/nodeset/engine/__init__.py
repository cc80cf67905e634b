"""The NodeSet controller as a running thing: what the pure modules beside it decide, it sees to.

Who may come in: `process`, through `reconciler.build`, and tests.

    caches       what is known of Kubernetes, and which NodeSets each change concerns
    memory       what this process remembers of a NodeSet between two looks; none of it must survive a crash
    outcome      what went wrong in one pass, and when to look again
    template     what new pods are made from, or why none can be made
    adoption     pods without an owner that belong to a NodeSet, and pods that do so no more
    history      its ControllerRevisions
    children     the objects beside its pods; `former` leaves those of a Controller it no longer belongs to
    observe      puts together what a plan is made on
    work         a plan with its surroundings, and how many writes go out at once
    act          carries a plan out; `pods` and `claims` write to Kubernetes
    errands      what is done at Slurm's pace, in the background: no pass waits for Slurm
    slurm        orders drains, and what nodes say about their pods; `records` orders what is on record
    booking      when to write to a reservation of which Slurm makes something else
    asking       has Slurm asked again before a deletion; `evidence` says how new its word must be
    answers      what our own writes left behind, until the cache shows it
    report       says how it is: status, conditions, events
    reconciler   one pass over a NodeSet, from first to last
"""
