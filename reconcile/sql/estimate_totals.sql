-- The estimates summed up per source, scope, pool and group; errors of both signs stay apart.
SELECT
    source,
    scope,
    pool,
    "group",
    count(*) AS requests,
    count(*) FILTER (WHERE NOT judged) AS unknown_requests,
    count(*) FILTER (WHERE judged AND observed_blocks > estimated_blocks) AS undercount_requests,
    count(*) FILTER (WHERE judged AND observed_blocks < estimated_blocks) AS overcount_requests,
    CAST(
        coalesce(sum(greatest(0, observed_blocks - estimated_blocks)) FILTER (WHERE judged), 0)
        AS BIGINT
    ) AS undercount_blocks,
    CAST(
        coalesce(sum(greatest(0, estimated_blocks - observed_blocks)) FILTER (WHERE judged), 0)
        AS BIGINT
    ) AS overcount_blocks,
    CAST(
        coalesce(sum(estimated_blocks) FILTER (WHERE judged), 0) AS BIGINT
    ) AS estimated_blocks,
    CAST(
        coalesce(sum(observed_blocks) FILTER (WHERE judged), 0) AS BIGINT
    ) AS observed_peak_blocks
FROM judged_estimates
GROUP BY source, scope, pool, "group"
ORDER BY source, scope, pool, "group"
