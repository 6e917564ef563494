-- id: I3
-- title: Release
-- severity: illegal
-- evidence: observed
-- proves: At the first step boundary after its finish or abort a request holds no block, unless
--   the engine put the release off; and an engine with nothing to run has no block that a
--   request, a copy on write or somebody unknown holds. Legal holders are requests that wait (for
--   a remote load), deferred frees, copies on write under way, pins of a connector, and the
--   prefix cache, which holds no reference.
-- reports: vllm#46283, vllm-ascend#16315
-- action: The blocks are gone until the engine restarts. With a KV connector, update it or run
--   without it; watch vllm:kv_cache_usage_perc of an idle engine.
WITH
ends AS (
    SELECT engine, epoch, seq, step, kind, request_key
    FROM request_events
    ANTI JOIN unknown_requests USING (engine, request_key)
    WHERE kind IN ('finish', 'abort') AND epoch IS NOT NULL
),
first_boundaries AS (
    SELECT
        ends.*,
        boundary.seq AS boundary_seq,
        boundary.step AS boundary_step,
        boundary.kind AS boundary
    FROM ends
    ASOF JOIN step_events AS boundary
        ON
            ends.engine = boundary.engine
            AND ends.epoch = boundary.epoch
            AND ends.seq < boundary.seq
),
in_groups AS (
    SELECT first_boundaries.*, groups.pool, groups."group"
    FROM first_boundaries
    JOIN groups USING (engine)
),
kept AS (
    SELECT in_groups.*, occupancy.held_blocks
    FROM in_groups
    ASOF JOIN occupancy
        ON
            in_groups.engine = occupancy.engine
            AND in_groups.epoch = occupancy.epoch
            AND in_groups.request_key = occupancy.request_key
            AND in_groups.pool = occupancy.pool
            AND in_groups."group" = occupancy."group"
            AND in_groups.boundary_seq >= occupancy.seq
    WHERE occupancy.held_blocks > 0
),
last_boundaries AS (
    SELECT
        engine,
        arg_max(epoch, seq) AS epoch,
        max(seq) AS seq,
        arg_max(step, seq) AS step,
        arg_max(running = 0 AND waiting = 0 AND deferred_blocks = 0, seq) AS idle
    FROM step_events
    GROUP BY engine
),
held_when_idle AS (
    SELECT
        boundary.engine,
        boundary.epoch,
        boundary.seq,
        boundary.step,
        reference_counts.pool,
        reference_counts.block,
        reference_counts.request_key,
        sum(reference_counts.delta) AS held
    FROM last_boundaries AS boundary
    JOIN reference_counts USING (engine, epoch)
    WHERE boundary.idle AND reference_counts.seq <= boundary.seq
    GROUP BY ALL
),
shares AS (
    SELECT *, sum(held) OVER (PARTITION BY engine, pool, block) AS held_by_all
    FROM held_when_idle
),
left_over AS (
    SELECT engine, epoch, seq, step, pool, request_key, count(*) AS blocks
    FROM shares
    ANTI JOIN unknown_requests USING (engine, request_key)
    ANTI JOIN kept USING (engine, request_key)
    WHERE
        held > 0
        AND held_by_all > 0
        AND (request_key >= 0 OR request_key IN (SELECT code FROM illegal_idle_holders))
    GROUP BY ALL
),
violations AS (
    SELECT
        engine,
        boundary_seq AS seq,
        request_key,
        format(
            'ended in step {} ({}) and still holds {} blocks of group {} in pool {} at the next '
            || 'boundary (step {}, {})',
            step, kind, held_blocks, "group", pool, boundary_step, boundary
        ) AS what
    FROM kept
    UNION ALL
    SELECT
        engine,
        seq,
        request_key,
        format('holds {} blocks of pool {} after step {} in an idle engine', blocks, pool, step)
    FROM left_over
)
SELECT
    'illegal' AS severity,
    violations.engine,
    violations.seq,
    CASE
        WHEN violations.request_key >= 0
            THEN 'request ' || coalesce(request_names.name, '#' || violations.request_key)
        ELSE coalesce(holders.name, '#' || violations.request_key)
    END || ' ' || violations.what || engines.label || '.' AS sentence
FROM violations
JOIN engines USING (engine)
LEFT JOIN request_names USING (engine, request_key)
LEFT JOIN holders ON violations.request_key = holders.code
