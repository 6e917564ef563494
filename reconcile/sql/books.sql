-- The engine's own counts beside the replayed ones, per pool, at every step boundary and snapshot.
WITH
stated AS (
    SELECT
        step_events.engine,
        step_events.epoch,
        step_events.seq,
        step_events.step,
        step_events.kind AS boundary,
        pools.pool,
        pools.num_blocks,
        step_events.free_blocks[pools.position + 1] AS engine_free_blocks,
        step_events.cached_hashes[pools.position + 1] AS engine_cached_hashes
    FROM step_events
    JOIN pools USING (engine)
    UNION ALL
    -- The rows of a snapshot are one moment: the replayed state is that before its first row, or
    -- after its last one where it is what replay starts from.
    SELECT
        snapshot.engine,
        snapshot.epoch,
        CASE WHEN snapshot.slice = 0 THEN slices.end_seq ELSE slices.begin_seq END,
        snapshot.step,
        'snapshot',
        snapshot.pool,
        pools.num_blocks,
        snapshot.free_blocks,
        NULL
    FROM snapshot_events AS snapshot
    JOIN slices USING (engine, epoch, slice)
    JOIN pools ON snapshot.engine = pools.engine AND snapshot.pool = pools.pool
    WHERE snapshot.kind = 'pool'
)
SELECT
    stated.engine,
    stated.epoch,
    stated.seq,
    stated.step,
    stated.boundary,
    stated.pool,
    stated.engine_free_blocks,
    -- The null block belongs to the engine.
    stated.num_blocks - 1 - coalesce(pool_levels.held_blocks, 0) AS replayed_free_blocks,
    stated.engine_cached_hashes,
    coalesce(hash_levels.cached_hashes, 0) AS replayed_cached_hashes
FROM stated
ASOF LEFT JOIN pool_levels
    ON
        stated.engine = pool_levels.engine
        AND stated.epoch = pool_levels.epoch
        AND stated.pool = pool_levels.pool
        AND stated.seq >= pool_levels.seq
ASOF LEFT JOIN hash_levels
    ON
        stated.engine = hash_levels.engine
        AND stated.epoch = hash_levels.epoch
        AND stated.pool = hash_levels.pool
        AND stated.seq >= hash_levels.seq
