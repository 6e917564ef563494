-- What each request held in each group at the moment it released its blocks.
WITH
releases AS (
    SELECT
        request_events.engine,
        request_events.epoch,
        request_events.request_key,
        request_events.seq,
        request_events.computed_tokens,
        groups.pool,
        groups."group",
        groups.block_tokens,
        groups.speculative_blocks
    FROM request_events
    JOIN groups USING (engine)
    WHERE
        request_events.kind IN ('preempt', 'finish', 'abort') AND request_events.epoch IS NOT NULL
),
held AS (
    SELECT releases.*, greatest(coalesce(occupancy.held_blocks, 0), 0) AS held_blocks
    FROM releases
    ASOF LEFT JOIN occupancy
        ON
            releases.engine = occupancy.engine
            AND releases.epoch = occupancy.epoch
            AND releases.request_key = occupancy.request_key
            AND releases.pool = occupancy.pool
            AND releases."group" = occupancy."group"
            AND releases.seq >= occupancy.seq
),
dropped AS (
    SELECT
        *,
        greatest(0, CAST(ceil(computed_tokens / block_tokens) AS BIGINT) - held_blocks)
        * block_tokens AS dropped_tokens
    FROM held
)
SELECT
    *,
    -- A window keeps the last blocks: their tokens are what is left of all computed ones.
    least(
        greatest(0, computed_tokens - dropped_tokens), held_blocks * block_tokens
    ) AS committed_tokens,
    CASE
        WHEN computed_tokens > 0 THEN greatest(0, held_blocks - speculative_blocks)
        ELSE 0
    END AS states
FROM dropped
