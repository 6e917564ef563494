-- Rows of the table block that lie in an epoch.
SELECT event.*, epochs.epoch
FROM trace_block AS event
ASOF JOIN epochs
    ON event.engine = epochs.engine AND event.seq > epochs.snapshot_end_seq
WHERE event.seq <= epochs.last_seq
