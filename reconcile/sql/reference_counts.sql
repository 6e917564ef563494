-- Every change of a block's reference count, with the count after it.
WITH
holders AS (
    SELECT
        engine,
        epoch,
        seq,
        generate_subscripts(blocks, 1) AS position,
        step,
        'snapshot' AS kind,
        pool,
        "group",
        request_key,
        unnest(blocks) AS block,
        1 AS delta
    FROM snapshot_events
    WHERE kind = 'holder' AND slice = 0
),
opening AS (
    SELECT
        *,
        place_number(engine, epoch, pool, block) AS place
    FROM holders
),
traced AS (
    SELECT
        engine, epoch, seq, position, step, kind, pool, "group", request_key, block, delta, place
    FROM block_events
    JOIN reference_deltas USING (kind)
    WHERE block IS NOT NULL
),
changes AS (
    SELECT * FROM opening
    UNION ALL
    SELECT * FROM traced
)
SELECT
    *,
    CAST(sum(delta) OVER (PARTITION BY place ORDER BY seq, position) AS INTEGER) AS count_after
FROM changes
