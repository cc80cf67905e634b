"""The decisions of the runtime, apart from the I/O that carries them out; pure."""
