"""The reconcilers: each observes through caches and views, decides with pure functions, and writes.

One module per controller, with a function `build(wiring)` that takes what it needs from the `Wiring` and
returns a `kube.controller.Controller`; `process.CONTROLLERS` lists them. A controller is the only place where
both worlds meet: `kube` and `slurm` do not know each other, and neither knows what the objects of `api` are
for. Who may come in: the process, and nobody else.
"""
