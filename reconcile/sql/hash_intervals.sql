-- From which event to which one a block could be found under a hash; end_seq is null for ever.
WITH
marks AS (
    SELECT place, engine, epoch, pool, block, "group", block_hash, seq, false AS removes
    FROM block_events
    WHERE kind = 'cache_insert'
    UNION ALL
    SELECT place, engine, epoch, pool, block, -1, 0, seq, true
    FROM block_events
    WHERE kind IN ('evict', 'cache_remove') AND block IS NOT NULL
    UNION ALL
    SELECT
        place_number(engine, epoch, pool, block) AS place,
        engine,
        epoch,
        pool,
        block,
        "group",
        block_hash,
        seq,
        false
    FROM (
        SELECT engine, epoch, pool, unnest(blocks) AS block, "group", block_hash, seq
        FROM snapshot_events
        WHERE kind = 'hash' AND slice = 0
    )
),
resets AS (
    SELECT DISTINCT engine, epoch, pool, seq
    FROM block_events
    WHERE kind = 'reset'
),
bounded AS (
    -- Read backwards, the running minimum is the next removal of any hash of the block.
    SELECT
        *,
        min(CASE WHEN removes THEN seq END) OVER (
            PARTITION BY place
            ORDER BY seq DESC
        ) AS removed_seq
    FROM marks
),
inserts AS (
    SELECT bounded.*, least(bounded.removed_seq, resets.seq) AS end_seq
    FROM bounded
    ASOF LEFT JOIN resets
        ON
            bounded.engine = resets.engine
            AND bounded.epoch = resets.epoch
            AND bounded.pool = resets.pool
            AND bounded.seq < resets.seq
    WHERE NOT bounded.removes AND EXISTS (SELECT 1 FROM resets)
    UNION ALL
    -- Without a reset nothing has to be sorted for one.
    SELECT bounded.*, bounded.removed_seq
    FROM bounded
    WHERE NOT bounded.removes AND NOT EXISTS (SELECT 1 FROM resets)
)
SELECT engine, epoch, pool, "group", block_hash, block, place, min(seq) AS start_seq, end_seq
FROM inserts
GROUP BY engine, epoch, pool, "group", block_hash, block, place, end_seq
