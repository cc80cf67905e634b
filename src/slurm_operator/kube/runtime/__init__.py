"""Controllers: queue, sources, manager, leader election, server-side apply, Events."""
