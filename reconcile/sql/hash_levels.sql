-- Distinct (hash, group) keys of a pool that lead to a block, after each event that changes
-- their number.
WITH
edges AS (
    SELECT engine, epoch, pool, "group", block_hash, start_seq AS seq, 1 AS change
    FROM hash_intervals
    UNION ALL
    SELECT engine, epoch, pool, "group", block_hash, end_seq, -1
    FROM hash_intervals
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
        sum(
            CAST(blocks_after > 0 AS INTEGER) - CAST(blocks_after - change > 0 AS INTEGER)
        ) AS change
    FROM counts
    GROUP BY ALL
    HAVING change <> 0
)
SELECT
    engine,
    epoch,
    pool,
    seq,
    CAST(
        sum(change) OVER (PARTITION BY engine, epoch, pool ORDER BY seq) AS INTEGER
    ) AS cached_hashes
FROM key_changes
