-- Rows of the table request, each with its epoch; null where the row lies in a gap.
SELECT
    request.*,
    CASE WHEN request.seq <= epochs.last_seq THEN epochs.epoch END AS epoch
FROM trace_request AS request
ASOF LEFT JOIN epochs
    ON request.engine = epochs.engine AND request.seq > epochs.snapshot_end_seq
