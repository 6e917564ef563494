-- Blocks a request holds in a group, after each call that changes their number.
WITH
changes AS (
    SELECT
        engine,
        epoch,
        request_key,
        pool,
        "group",
        seq,
        min(step) AS step,
        CAST(sum(delta) AS INTEGER) AS change
    FROM reference_counts
    WHERE request_key >= 0
    GROUP BY ALL
),
preemptions AS (
    SELECT
        engine,
        request_key,
        seq,
        row_number() OVER (PARTITION BY engine, request_key ORDER BY seq) AS preemptions
    FROM request_events
    WHERE kind = 'preempt'
)
SELECT
    changes.*,
    CAST(
        sum(changes.change) OVER (
            PARTITION BY
                changes.engine,
                changes.epoch,
                changes.request_key,
                changes.pool,
                changes."group"
            ORDER BY changes.seq
        ) AS INTEGER
    ) AS held_blocks,
    1 + coalesce(preemptions.preemptions, 0) AS attempt
FROM changes
ASOF LEFT JOIN preemptions
    ON
        changes.engine = preemptions.engine
        AND changes.request_key = preemptions.request_key
        AND changes.seq > preemptions.seq
