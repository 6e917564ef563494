-- The most blocks each admission held in each group, over its life and until its prefill ended.
WITH
observed AS (
    -- A maximum stands right after blocks were taken. What a preempted attempt releases after its
    -- preemption therefore never counts for the next attempt.
    SELECT
        attempts.engine,
        attempts.request_key,
        attempts.attempt,
        occupancy.pool,
        occupancy."group",
        max(occupancy.held_blocks) AS life_blocks,
        max(occupancy.held_blocks) FILTER (
            WHERE
                attempts.prefill_end_step IS NULL
                OR occupancy.step <= attempts.prefill_end_step
        ) AS prefill_blocks
    FROM attempts
    JOIN occupancy USING (engine, request_key, attempt)
    WHERE occupancy.change > 0
    GROUP BY ALL
),
per_group AS (
    SELECT
        attempts.*,
        groups.pool,
        groups."group",
        coalesce(observed.life_blocks, 0) AS life_blocks,
        coalesce(observed.prefill_blocks, 0) AS prefill_blocks
    FROM attempts
    JOIN groups USING (engine)
    LEFT JOIN observed USING (engine, request_key, attempt, pool, "group")
)
SELECT
    engine,
    request_key,
    attempt,
    prompt_tokens,
    max_tokens,
    prefill_tokens,
    pool,
    "group",
    'life' AS scope,
    life_blocks AS observed_blocks,
    ended AND NOT unknown AS judged,
    unknown
FROM per_group
UNION ALL
SELECT
    engine,
    request_key,
    attempt,
    prompt_tokens,
    max_tokens,
    prefill_tokens,
    pool,
    "group",
    'prefill',
    prefill_blocks,
    (ended OR prefill_end_step IS NOT NULL) AND NOT unknown,
    unknown
FROM per_group
