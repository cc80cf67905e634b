"""A small controller runtime for asyncio. It knows Kubernetes and has never heard of Slurm.

Data flows one way through this room: an `Informer` lists and watches one kind and keeps a typed, indexed
`Store`; a `Controller` maps each change to keys in a `WorkQueue` and calls one `reconcile(key)` per key at a
time; the reconciler reads stores, decides, and writes through the `Client`. The `Manager` starts all of it in
order and stops it in reverse.

Pure, free to import from anywhere, and kept so by a contract in `pyproject.toml`: `meta`, `models`, `errors`,
`store`, `merge`, `expectations`, `revisions`, and the deciding half of what does I/O: `election`,
`eventseries`, `reflector_state`, `backoff`. The rest does I/O and belongs to whoever wires the process
(`cli`, `controllers`, `webhook`).
"""
