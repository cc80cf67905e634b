"""Observing and acting for a NodeSet: everything of its controller that does I/O.

watches          what is known of Kubernetes, and which NodeSets each change concerns
state            what this process remembers of a NodeSet between reconciles; losing it is safe
observe          puts together what a plan is made from
template         what new pods are made from, and which revision they have
ownership        pods without an owner that belong to a NodeSet, and pods that do no longer
shared_objects   the Service and the budget that the NodeSets of a Controller share
slurm_names      the names of workers in Slurm, of all NodeSets
one_pass         a plan with its surroundings, and what became of it
execute          carries out a plan, in order
pod_writes, claim_writes
                 writes to Kubernetes
background       what is done at Slurm's pace; no reconcile waits for Slurm
slurm_nodes, slurm_records
                 writes to Slurm: drains, comments, records, reservations
report           status, conditions, events
"""
