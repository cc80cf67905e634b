"""A small controller runtime for asyncio. It depends on Kubernetes and is independent of Slurm.

Data flows one way through this package: an `Informer` lists and watches one kind and keeps a typed, indexed
`Store`; a `Controller` maps each change to keys in a `WorkQueue` and calls one `reconcile(key)` per key at a
time; the reconciler reads stores, decides, and writes through the `Client`. The `Manager` starts all of it in
order and stops it in reverse.

Pure, free to import from anywhere, and kept so by a contract in `pyproject.toml`: `meta`, `models`, `errors`,
`store`, `merge`, `mergekeys`, `semantics`, `managedfields`, `expectations`, `revisions`, and the decisions of
modules that do I/O: `election`, `eventseries`, `reflector_state`, `backoff`. Modules that do I/O are for
the layers above `objects` (`controllers`, `webhook`, `process`, `cli`).
"""
