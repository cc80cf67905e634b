"""Observing and acting for a NodeSet: everything of its controller that does I/O.

watches          what is known of Kubernetes, which NodeSets each change concerns, names of workers in Slurm
reconcile_state  what is remembered of a NodeSet between reconciles, a plan with its surroundings, its outcome
observe          puts together what a plan is made from
template         what new pods are made from, and which revision they have
ownership        pods without an owner that belong to a NodeSet, and pods that do no longer
shared_objects   the Service and the budget that the NodeSets of a Controller share
execute          carries out a plan, in order
pod_writes, claim_writes
                 writes to Kubernetes
background       many writes at once, decisions in a thread, and tasks that wait for Slurm
slurm_nodes, slurm_records
                 writes to Slurm: drains, comments, records, reservations
report, nodeset_metrics
                 status, conditions, Events; metrics
"""
