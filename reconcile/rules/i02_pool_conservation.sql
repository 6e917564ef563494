-- id: I2
-- title: Pool conservation
-- severity: illegal
-- evidence: derived
-- proves: Replaying every call from the last snapshot gives the engine's own free blocks and
--   prefix-cache entries at each step boundary, no reference count falls below zero, no block is
--   handed out that is held or still cached, no block keeps hashes that were moved, later snapshots
--   hold what replay holds, and of a process that lost nothing no event is missing.
-- reports: vllm#46283, vllm#47728, vllm#45357
-- action: Run vstate doctor --probe on this engine. Where it passes, the engine's own books are
--   wrong: keep the run and report it with the first step named; until then switch off what
--   shares blocks (--no-enable-prefix-caching, connectors).
WITH
free_counts AS (
    SELECT
        *,
        replayed_free_blocks - engine_free_blocks AS difference,
        lag(replayed_free_blocks - engine_free_blocks, 1, 0) OVER boundaries AS difference_before
    FROM books
    WHERE engine_free_blocks IS NOT NULL
    WINDOW boundaries AS (PARTITION BY engine, epoch, pool ORDER BY seq)
),
cached_counts AS (
    SELECT
        *,
        replayed_cached_hashes - engine_cached_hashes AS difference,
        lag(replayed_cached_hashes - engine_cached_hashes, 1, 0) OVER boundaries
            AS difference_before
    FROM books
    WHERE engine_cached_hashes IS NOT NULL
    WINDOW boundaries AS (PARTITION BY engine, epoch, pool ORDER BY seq)
),
allocations AS (
    SELECT *
    FROM reference_counts
    WHERE kind = 'alloc'
),
handed_out AS (
    -- The engine forgets the hashes of a block when it hands it out.
    SELECT
        allocations.engine,
        allocations.seq,
        allocations.step,
        allocations.pool,
        allocations.block,
        allocations.place,
        boundary.seq AS boundary_seq
    FROM allocations
    ASOF JOIN step_events AS boundary
        ON
            allocations.engine = boundary.engine
            AND allocations.epoch = boundary.epoch
            AND allocations.seq < boundary.seq
),
cached_until AS (
    -- A block can be found under several hashes: the last of those so far to end counts.
    SELECT
        place,
        start_seq,
        max(coalesce(end_seq, 9223372036854775807)) OVER (
            PARTITION BY place
            ORDER BY start_seq
        ) AS last_end_seq
    FROM hash_intervals
),
still_cached AS (
    SELECT handed_out.*
    FROM handed_out
    ASOF JOIN cached_until
        ON handed_out.place = cached_until.place AND handed_out.seq > cached_until.start_seq
    WHERE cached_until.last_end_seq > handed_out.boundary_seq
),
forgotten AS (
    -- The engine names a block here only when it had a hash to forget.
    SELECT removal.engine, removal.seq, removal.step, removal.pool, removal.block
    FROM block_events AS removal
    ANTI JOIN hash_intervals
        ON removal.place = hash_intervals.place AND removal.seq = hash_intervals.end_seq
    WHERE removal.kind IN ('evict', 'cache_remove') AND removal.block IS NOT NULL
),
not_moved AS (
    -- Moving the hashes of a block leaves it none; another block carries the same ones from then on,
    -- so that no count would tell.
    SELECT move.engine, move.seq, move.step, move.pool, move.block
    FROM (SELECT * FROM block_events WHERE kind = 'move' AND position = 0) AS move
    ASOF JOIN cached_until
        ON move.place = cached_until.place AND move.seq > cached_until.start_seq
    WHERE cached_until.last_end_seq > move.seq
),
missing AS (
    -- All events of a process are numbered by one counter; one that says it lost none has no hole.
    SELECT
        number_holes.engine,
        engines.process,
        min(number_holes.after_seq) AS seq,
        max(number_holes.next_seq) AS next_seq,
        CAST(sum(number_holes.next_seq - number_holes.after_seq - 1) AS BIGINT) AS events
    FROM number_holes
    JOIN engines USING (engine)
    ANTI JOIN (SELECT engine FROM trace_snapshot WHERE lost_from_step >= 0) AS told USING (engine)
    WHERE engines.complete
    GROUP BY number_holes.engine, engines.process
),
violations AS (
    -- A difference goes on from its first boundary; only its changes are told.
    SELECT
        engine,
        seq,
        format(
            'step {} ({}): pool {} has {} free blocks by replay, {} by the engine''s own counter',
            step, boundary, pool, replayed_free_blocks, engine_free_blocks
        ) AS sentence
    FROM free_counts
    WHERE difference <> 0 AND difference <> difference_before
    UNION ALL
    SELECT
        engine,
        seq,
        format(
            'step {} ({}): pool {} has {} prefix-cache entries by replay, {} in the engine''s map',
            step, boundary, pool, replayed_cached_hashes, engine_cached_hashes
        )
    FROM cached_counts
    WHERE difference <> 0 AND difference <> difference_before
    UNION ALL
    SELECT
        engine,
        seq,
        format(
            'step {}: block {} of pool {} was released {} times more than it was taken',
            step, block, pool, -count_after
        )
    FROM reference_counts
    WHERE count_after < 0 AND delta < 0
    UNION ALL
    SELECT
        engine,
        seq,
        format(
            'step {}: block {} of pool {} was handed out while {} references to it were held',
            step, block, pool, count_after - delta
        )
    FROM allocations
    WHERE count_after - delta > 0
    UNION ALL
    SELECT
        engine,
        seq,
        format(
            'step {}: block {} of pool {} was handed out and stayed in the prefix cache',
            step, block, pool
        )
    FROM still_cached
    UNION ALL
    SELECT
        engine,
        seq,
        format(
            'step {}: block {} of pool {} left the prefix cache, in which replay does not have it',
            step, block, pool
        )
    FROM forgotten
    UNION ALL
    SELECT
        engine,
        seq,
        format('step {}: block {} of pool {} kept hashes that were moved to another block', step, block, pool)
    FROM not_moved
    UNION ALL
    SELECT
        engine,
        seq,
        format(
            '{} events of process {} are missing between {} and {} though none was reported lost',
            events, process, seq, next_seq
        )
    FROM missing
    UNION ALL
    SELECT
        difference.engine,
        difference.seq,
        format(
            'step {}: pool {}: {} {} differ between replay and the engine''s snapshot',
            boundary.step, difference.pool, difference.differences, difference.what
        )
    FROM checkpoint_differences AS difference
    JOIN snapshot_events AS boundary USING (engine, epoch, seq)
)
SELECT
    'illegal' AS severity,
    violations.engine,
    violations.seq,
    violations.sentence || engines.label || '.' AS sentence
FROM violations
JOIN engines USING (engine)
