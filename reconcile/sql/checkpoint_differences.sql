-- References and hashes in which replay and a snapshot inside an epoch differ.
WITH
holders AS (
    -- A snapshot cannot tell apart what the engine holds itself, nor for which group.
    SELECT
        engine,
        epoch,
        slice,
        pool,
        greatest(request_key, -1) AS request_key,
        CASE WHEN request_key >= 0 THEN "group" ELSE -1 END AS "group",
        unnest(blocks) AS block
    FROM snapshot_events
    WHERE kind = 'holder' AND EXISTS (SELECT 1 FROM slices WHERE slice > 0)
),
traced AS (
    SELECT
        event.engine,
        event.epoch,
        slices.slice,
        event.pool,
        greatest(event.request_key, -1) AS request_key,
        CASE WHEN event.request_key >= 0 THEN event."group" ELSE -1 END AS "group",
        event.block,
        event.delta
    FROM (
        -- Without a second snapshot there is nothing to compare, nor to sort.
        SELECT * FROM reference_counts
        WHERE kind <> 'snapshot' AND EXISTS (SELECT 1 FROM slices WHERE slice > 0)
    ) AS event
    ASOF JOIN slices
        ON
            event.engine = slices.engine
            AND event.epoch = slices.epoch
            AND event.seq > slices.begin_seq
),
-- What a snapshot states, less what the one before it stated and what happened in between.
holder_terms AS (
    SELECT engine, epoch, slice, pool, request_key, "group", block, 1 AS term
    FROM holders
    UNION ALL
    SELECT engine, epoch, slice + 1, pool, request_key, "group", block, -1
    FROM holders
    UNION ALL
    SELECT engine, epoch, slice + 1, pool, request_key, "group", block, -delta
    FROM traced
),
holder_differences AS (
    SELECT engine, epoch, slice, pool, 'references' AS what
    FROM holder_terms
    GROUP BY engine, epoch, slice, pool, request_key, "group", block
    HAVING sum(term) <> 0
),
placed_intervals AS (
    SELECT hash_intervals.*, slices.slice AS start_slice
    FROM (SELECT * FROM hash_intervals WHERE EXISTS (SELECT 1 FROM slices WHERE slice > 0)) AS hash_intervals
    ASOF JOIN slices
        ON
            hash_intervals.engine = slices.engine
            AND hash_intervals.epoch = slices.epoch
            AND hash_intervals.start_seq > slices.begin_seq
),
hash_terms AS (
    SELECT engine, epoch, slice, pool, "group", block_hash, unnest(blocks) AS block, 1 AS term
    FROM snapshot_events
    WHERE kind = 'hash'
    UNION ALL
    SELECT
        placed.engine,
        placed.epoch,
        unnest(range(placed.start_slice + 1, slices.slice + 1)),
        placed.pool,
        placed."group",
        placed.block_hash,
        placed.block,
        -1
    FROM placed_intervals AS placed
    ASOF JOIN slices
        ON
            placed.engine = slices.engine
            AND placed.epoch = slices.epoch
            AND coalesce(placed.end_seq, 9223372036854775807) > slices.begin_seq
),
hash_differences AS (
    SELECT engine, epoch, slice, pool, 'hashes' AS what
    FROM hash_terms
    GROUP BY engine, epoch, slice, pool, "group", block_hash, block
    HAVING sum(term) <> 0
),
differences AS (
    SELECT * FROM holder_differences
    UNION ALL
    SELECT * FROM hash_differences
)
SELECT
    differences.engine,
    differences.epoch,
    differences.pool,
    differences.what,
    slices.begin_seq AS seq,
    count(*) AS differences
FROM differences
JOIN slices USING (engine, epoch, slice)
WHERE differences.slice > 0
GROUP BY ALL
