"""Pure functions from custom resources to the objects made from them.

The controllers and the webhook import this package. A reconciler fetches, calls one function here, and
applies what it returns; the webhook validates an object by rendering it. Nothing in this package reads a
cache, sends a request or looks at a clock.

One module per daemon (`slurmctld`, `slurmdbd`, `slurmrestd`, `login`), each with two entrances: `references`
names the Secrets and ConfigMaps whose content the result depends on, so that exactly these are watched, and
`desired` returns the objects as plain dicts, written in the order of a manifest. The other modules are what
the daemons share: metadata, Services, the merging of pods, the mapping to configuration files, hashes.

What a user got wrong or has not made yet does not stop the rest: the objects that cannot be built are left
out, and `Desired.problems` has the reason and the field to look at. An object that is left out stays as it is
in the cluster. So a ConfigMap that a user deletes by mistake restarts nothing.
"""
