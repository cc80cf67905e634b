"""NodeSet: worker pods, and the promise that no job is ever killed.

Who may come in: `engine`, and tests. A reconcile observes, plans and acts, and only the plan is clever.
The deciding modules are pure: they take an `Observation`, which is all that one reconcile sees, and return
data. None of them awaits, asks the time, or remembers anything. What must survive a crash is in the pods, in
the NodeSet's status, in the ControllerRevisions and in Slurm.

    observation   what is seen: the NodeSet, its pods, the nodes under them, the view of Slurm, the moment
    sight         what Slurm says about the node of a pod, as far as it may be believed
    policies      what may be done to one pod: Allow, or Hold with a reason and a sentence
    order         which pod goes first
    scaling, daemon, updating, registration, departure
                  which pods are wanted, and which of those that exist have to go, and why
    cordon        which nodes must not take new work, and which of our own drains to take back
    upkeep        labels, annotations, comments, topology and features of what stays
    claims, records, reservation
                  the volumes of a pod, its record in Slurm, the maintenance window
    plan          puts them in order
    memo          spares the next plan what has not changed, and changes none
    status        what to tell people about it
"""
