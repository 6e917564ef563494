"""Vocabulary and wire format shared by every layer of vstate.

Nothing in here imports vLLM, torch, polars or duckdb, and nothing in here knows
how a figure is obtained: only what it is called, in which unit it is counted and
how it is written down.
"""

if __name__ != "vstate.schemas":
    raise ImportError("import vstate.schemas: the folder schemas/ is not a package of its own")
