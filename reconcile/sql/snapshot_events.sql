-- Rows of the snapshots that replay starts from or is checked against.
SELECT row.*, slices.epoch, slices.slice
FROM trace_snapshot AS row
ASOF JOIN slices
    ON row.engine = slices.engine AND row.seq >= slices.begin_seq
WHERE row.seq <= slices.end_seq
