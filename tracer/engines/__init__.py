"""Engines for `vstate trace run`: each runs in a process of its own under a launcher."""
