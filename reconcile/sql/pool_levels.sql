-- Blocks of a pool that somebody holds, after each event that changes their number.
WITH
changes AS (
    SELECT
        engine,
        epoch,
        pool,
        seq,
        sum(CAST(count_after > 0 AS INTEGER) - CAST(count_after - delta > 0 AS INTEGER)) AS change
    FROM reference_counts
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
    ) AS held_blocks
FROM changes
