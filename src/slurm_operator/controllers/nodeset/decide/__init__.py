"""What to do about a NodeSet: `plan(observation)` returns actions. Pure, by an import contract.

observation        what one reconcile sees: the NodeSet, its pods, their nodes, the view of Slurm, the time
slurm_state        what Slurm says about the node of a pod, as far as it counts
plan               puts all decisions in order
actions            what a plan consists of, and the reasons for waiting
deletion           whether a pod may be deleted, and how fresh the evidence must be
protection         which workers Kubernetes must not remove; its requests, carried out when they are idle
scale, scale_per_node, autoscale, update, finalizer
                   which workers are wanted, which of those that exist must be removed, and why
name_conflicts     names in Slurm that another NodeSet has
cordon             which nodes must not take new work, and which of our own drains to undo
pod_status         labels, annotations and conditions of pods; comment, topology and features of nodes
claims, node_records, reservation
                   the volumes of a pod, its record in Slurm, the maintenance window
status             the NodeSet's status and conditions
messages           the sentences of conditions and Events
memo               spares the next plan what has not changed, and changes none
"""
