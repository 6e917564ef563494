-- Step boundaries that lie in an epoch.
SELECT boundary.*, epochs.epoch
FROM trace_step AS boundary
ASOF JOIN epochs
    ON boundary.engine = epochs.engine AND boundary.seq > epochs.snapshot_end_seq
WHERE boundary.seq <= epochs.last_seq
