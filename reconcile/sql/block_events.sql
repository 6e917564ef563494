-- Rows of the table block that lie in an epoch.
SELECT
    event.*,
    epochs.epoch,
    place_number(event.engine, epochs.epoch, event.pool, event.block) AS place
FROM trace_block AS event
-- Epochs do not overlap and are few: one hash join costs a third of an ASOF join, which sorts all rows.
JOIN epochs
    ON
        event.engine = epochs.engine
        AND event.seq > epochs.snapshot_end_seq
        AND event.seq <= epochs.last_seq
