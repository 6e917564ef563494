-- Every estimate beside the peak it is judged by; `estimated_blocks` is null where it was lost.
WITH
stock AS (
    SELECT
        engine,
        request_key,
        attempt,
        pool,
        "group",
        arg_max(new_blocks + held_blocks, seq) AS estimated_blocks
    FROM trace_estimate
    WHERE source = 'stock' AND scope = 'prefill' AND verdict = 'admitted'
    GROUP BY ALL
),
stock_groups AS (
    SELECT DISTINCT engine, pool, "group"
    FROM stock
),
by_gate AS (
    SELECT peaks.*, 'stock' AS source, stock.estimated_blocks
    FROM peaks
    JOIN stock_groups USING (engine, pool, "group")
    LEFT JOIN stock USING (engine, request_key, attempt, pool, "group")
    WHERE stock.estimated_blocks IS NOT NULL OR peaks.unknown
),
by_formula AS (
    SELECT peaks.*, bounds.source, bounds.estimated_blocks
    FROM peaks
    JOIN bounds USING (engine, pool, "group", prompt_tokens, max_tokens, prefill_tokens)
    WHERE peaks.scope = 'life'
)
SELECT * FROM by_gate
UNION ALL BY NAME
SELECT * FROM by_formula
