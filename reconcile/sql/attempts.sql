-- One row per admission of a request: its lengths, where its prefill ended, whether it ended.
-- `prefill_tokens` are all that were known then: a resumed request prefills what it had produced, too.
WITH
admissions AS (
    -- A session's later input counts with the lengths that it brought.
    SELECT
        engine,
        request_key,
        attempt,
        arg_max(prompt_tokens, seq) AS prompt_tokens,
        arg_max(max_tokens, seq) AS max_tokens,
        arg_max(greatest(prompt_tokens, total_tokens), seq) AS prefill_tokens
    FROM request_events
    WHERE kind IN ('admit', 'resume', 'extend')
    GROUP BY ALL
    HAVING bool_or(kind <> 'extend')
),
admissions_before_snapshot AS (
    SELECT
        engine,
        request_key,
        attempt,
        min(prompt_tokens) AS prompt_tokens,
        min(max_tokens) AS max_tokens,
        min(greatest(prompt_tokens, total_tokens)) AS prefill_tokens
    FROM snapshot_events
    WHERE kind = 'request' AND slice = 0 AND attempt >= 1
    GROUP BY ALL
),
known AS (
    SELECT * FROM admissions
    UNION ALL
    SELECT *
    FROM admissions_before_snapshot
    ANTI JOIN admissions USING (engine, request_key, attempt)
),
ends AS (
    SELECT DISTINCT engine, request_key, attempt, true AS ended
    FROM request_events
    WHERE kind IN ('preempt', 'finish', 'abort')
),
prefills AS (
    SELECT engine, request_key, attempt, min(step) AS prefill_end_step
    FROM request_events
    WHERE kind = 'prefill_chunk' AND computed_tokens + scheduled_tokens >= total_tokens
    GROUP BY ALL
),
unknown AS (
    SELECT engine, request_key, true AS unknown
    FROM unknown_requests
)
SELECT
    known.*,
    prefills.prefill_end_step,
    coalesce(ends.ended, false) AS ended,
    coalesce(unknown.unknown, false) AS unknown
FROM known
LEFT JOIN ends USING (engine, request_key, attempt)
LEFT JOIN prefills USING (engine, request_key, attempt)
LEFT JOIN unknown USING (engine, request_key)
