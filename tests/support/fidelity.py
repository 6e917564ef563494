"""What an engine did, in an order and with names that two engines can be compared by."""

from vstate.schemas.tables.names import NameKind

TABLES = ("step", "request", "estimate", "block", "prefix", "encoder")
NOT_COMPARED = {"seq", "time_ns", "modelled_ns", "block_hash", "media", "reason"}
"""Order in its own run, time, and what is keyed with the run's secret or numbered by the run."""


def events(run):
    """Rows of all tables in the order in which they were recorded, requests by their external ids."""
    external = {row["key"]: row["value"] for row in run.rows("names") if row["kind"] == NameKind.EXTERNAL}
    found = []
    for table in TABLES:
        for row in run.rows(table):
            cells = {name: value for name, value in row.items() if name not in NOT_COMPARED}
            if "request_key" in cells:
                cells["request_key"] = external.get(cells["request_key"], cells["request_key"])
            found.append((row["seq"], table, cells))
    return [(table, cells) for _, table, cells in sorted(found, key=lambda event: event[0])]


def first_difference(run, other):
    """Where two runs part, with what led to it; None where they never do."""
    ours, theirs = events(run), events(other)
    for place, pair in enumerate(zip(ours, theirs, strict=False)):
        if pair[0] != pair[1]:
            return place, pair, ours[max(0, place - 5) : place]
    return None if len(ours) == len(theirs) else (len(ours), len(theirs))
