-- The parts of an epoch between its snapshots: slice 0 begins with the snapshot that the epoch
-- starts from, every other slice with a checkpoint.
WITH
snapshots AS (
    SELECT engine, epoch, snapshot_begin_seq AS begin_seq, snapshot_end_seq AS end_seq
    FROM epochs
    UNION ALL
    SELECT engine, epoch, begin_seq, end_seq
    FROM checkpoints
)
SELECT
    *,
    row_number() OVER (PARTITION BY engine, epoch ORDER BY begin_seq) - 1 AS slice
FROM snapshots
