"""A small controller runtime for asyncio. It depends on Kubernetes and is independent of Slurm.

Data flows one way through this package: an `Informer` lists and watches one kind and keeps a typed, indexed
`Store`; a `Controller` maps each change to keys in a `WorkQueue` and calls one `reconcile(key)` per key at a
time; the reconciler reads stores, decides, and writes through the `Client`. The `Manager` starts all of it in
order and stops it in reverse.

`models`, `manifests`, `decide` and `errors` are pure and may be imported from anywhere; a contract in
`pyproject.toml` keeps them so. `client`, `cache`, `runtime` and `process` do I/O and are for the layers above
`objects` (`controllers`, `webhook`, `process`, `cli`).
"""
