-- Requests of whose life a part was lost: no rule judges them.
WITH
opened AS (
    SELECT engine, epoch, request_key
    FROM request_events
    WHERE kind = 'arrive' AND epoch IS NOT NULL
    UNION
    SELECT engine, epoch, request_key
    FROM snapshot_events
    WHERE kind = 'request' AND slice = 0
),
ended AS (
    SELECT engine, epoch, request_key
    FROM request_events
    WHERE kind IN ('finish', 'abort') AND epoch IS NOT NULL
),
alive_before_gap AS (
    SELECT opened.engine, opened.request_key
    FROM opened
    JOIN epochs USING (engine, epoch)
    ANTI JOIN ended USING (engine, epoch, request_key)
    WHERE epochs.before_gap
),
alive_after_gap AS (
    -- One that waits in the very first snapshot has lost nothing yet.
    SELECT engine, request_key
    FROM snapshot_events
    JOIN epochs USING (engine, epoch)
    WHERE kind = 'request' AND slice = 0 AND (epochs.after_gap OR attempt >= 1)
),
seen_in_gap AS (
    SELECT engine, request_key
    FROM request_events
    WHERE epoch IS NULL
)
SELECT * FROM alive_before_gap
UNION
SELECT * FROM alive_after_gap
UNION
SELECT * FROM seen_in_gap
