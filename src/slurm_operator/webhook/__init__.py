"""Admission: what the API server asks before it stores our objects, replaces keys, or binds workers.

A process of its own, so that a busy operator delays no `kubectl apply`, and an operator that is down lets
nothing wrong in. Two parts:

- `rules` validate an object: one module per kind, pure functions from structs to findings. They do not repeat
  what the renderers in `objects` check by themselves; they run these with stand-ins for everything that an
  object refers to, and report what cannot be built. `rules.admission` decides about updates: what may not
  change, what was wrong before and is accepted in another change, and which writes are never refused
  (deletion, finalizers, status, metadata).
- `lookups`, `binding`, `removals`, `certificates`, `server` and `webhook_process` do the I/O.

May be imported by the command line only. Imports `objects`, `api`, `kube` and the pure parts of `slurm`;
never `controllers`, and no cryptography: the process starts in a fraction of a second and stays small.
"""
