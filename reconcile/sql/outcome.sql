-- What happened in the run, counted from the trace; the order is that of the summary.
WITH
of_requests AS (
    SELECT
        count(*) FILTER (WHERE kind = 'admit') AS admissions,
        count(*) FILTER (WHERE kind = 'resume') AS resumes,
        count(*) FILTER (WHERE kind = 'refuse') AS refusals,
        count(*) FILTER (WHERE kind = 'prefill_chunk') AS prefill_chunks,
        count(*) FILTER (WHERE kind = 'preempt') AS preemptions,
        count(*) FILTER (WHERE kind = 'finish') AS finished,
        count(*) FILTER (WHERE kind = 'abort') AS aborts,
        count(*) FILTER (WHERE kind IN ('admit', 'resume') AND hit_tokens > 0) AS prefix_hits,
        coalesce(
            sum(hit_tokens) FILTER (WHERE kind IN ('admit', 'resume') AND hit_tokens > 0), 0
        ) AS prefix_hit_tokens
    FROM trace_request
),
of_blocks AS (
    SELECT
        count(block) FILTER (WHERE kind = 'evict') AS evictions,
        -- Position 0 stands for the call.
        count(*) FILTER (
            WHERE kind = 'pin' AND request_key = $copy_on_write AND position = 0
        ) AS copy_on_write,
        count(*) FILTER (WHERE kind = 'reset' AND position = 0) AS resets
    FROM trace_block
),
first_snapshots AS (
    SELECT engine, min(snapshot_begin_seq) AS begin_seq, min(snapshot_end_seq) AS end_seq
    FROM epochs
    GROUP BY engine
),
seen AS (
    SELECT engine, request_key
    FROM trace_request
    WHERE kind = 'arrive'
    UNION
    SELECT snapshot.engine, snapshot.request_key
    FROM trace_snapshot AS snapshot
    JOIN first_snapshots USING (engine)
    WHERE
        snapshot.kind = 'request'
        AND snapshot.seq BETWEEN first_snapshots.begin_seq AND first_snapshots.end_seq
)
SELECT
    (SELECT count(*) FROM seen) AS requests,
    admissions,
    resumes,
    refusals,
    prefill_chunks,
    prefix_hits,
    prefix_hit_tokens,
    preemptions,
    finished,
    aborts,
    evictions,
    copy_on_write,
    resets
FROM of_requests, of_blocks
