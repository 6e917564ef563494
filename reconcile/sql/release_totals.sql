-- Releases summed up per engine and group.
SELECT
    engine,
    pool,
    "group",
    CAST(sum(committed_tokens) AS BIGINT) AS committed_tokens,
    CAST(sum(states) AS BIGINT) AS states,
    CAST(sum(held_blocks) AS BIGINT) AS held_blocks
FROM releases
GROUP BY engine, pool, "group"
ORDER BY engine, pool, "group"
