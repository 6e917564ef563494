-- Distinct (hash, group) keys of a pool that lead to a block, after each event that changes
-- their number.
WITH
repeated AS (
    SELECT engine, epoch, pool, "group", block_hash
    FROM hash_intervals
    GROUP BY ALL
    HAVING count(*) > 1
),
-- A key that never led to more than one block comes and goes with it.
single AS (
    SELECT engine, epoch, pool, start_seq, end_seq
    FROM hash_intervals
    ANTI JOIN repeated USING (engine, epoch, pool, "group", block_hash)
),
edges AS (
    SELECT engine, epoch, pool, "group", block_hash, start_seq AS seq, 1 AS change
    FROM hash_intervals
    SEMI JOIN repeated USING (engine, epoch, pool, "group", block_hash)
    UNION ALL
    SELECT engine, epoch, pool, "group", block_hash, end_seq, -1
    FROM hash_intervals
    SEMI JOIN repeated USING (engine, epoch, pool, "group", block_hash)
    WHERE end_seq IS NOT NULL
),
changes AS (
    SELECT engine, epoch, pool, "group", block_hash, seq, sum(change) AS change
    FROM edges
    GROUP BY ALL
),
counts AS (
    SELECT
        *,
        sum(change) OVER (
            PARTITION BY engine, epoch, pool, "group", block_hash
            ORDER BY seq
        ) AS blocks_after
    FROM changes
),
key_changes AS (
    SELECT
        engine,
        epoch,
        pool,
        seq,
        CAST(blocks_after > 0 AS INTEGER) - CAST(blocks_after - change > 0 AS INTEGER) AS change
    FROM counts
    UNION ALL
    SELECT engine, epoch, pool, start_seq, 1
    FROM single
    UNION ALL
    SELECT engine, epoch, pool, end_seq, -1
    FROM single
    WHERE end_seq IS NOT NULL
),
sums AS (
    SELECT engine, epoch, pool, seq, sum(change) AS change
    FROM key_changes
    GROUP BY ALL
    HAVING sum(change) <> 0
)
SELECT
    engine,
    epoch,
    pool,
    seq,
    CAST(
        sum(change) OVER (PARTITION BY engine, epoch, pool ORDER BY seq) AS INTEGER
    ) AS cached_hashes
FROM sums
