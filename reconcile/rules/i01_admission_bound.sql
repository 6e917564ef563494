-- id: I1
-- title: Admission bound
-- severity: undercount
-- evidence: observed
-- proves: Per admission and group, the estimate covers the most non-null blocks that the request
--   held at any event. The bound of vstate is judged over the whole life; the engine's own gate
--   promises no more than the prefill and is told as info.
-- reports: vllm#39734, vllm#40027, vllm#45856, tt-xla#5860, vllm#55800, vllm#57000, vllm#52520,
--   vllm#49064
-- action: An under-count of vstate is a bug of its bound: report the run. Where the engine's gate
--   under-counts, expect preemptions; lower --max-num-seqs or --max-num-batched-tokens, or give
--   the cache more memory.
SELECT
    CASE WHEN judged.source = 'vstate' THEN 'undercount' ELSE 'info' END AS severity,
    judged.engine,
    judged.request_key AS seq,
    format(
        'request {} (attempt {}) held {} blocks of group {} in pool {} over its {}, '
        || '{} estimated {}{}.',
        coalesce(request_names.name, '#' || judged.request_key),
        judged.attempt,
        judged.observed_blocks,
        judged."group",
        judged.pool,
        judged.scope,
        judged.source,
        judged.estimated_blocks,
        engines.label
    ) AS sentence
FROM judged_estimates AS judged
JOIN engines USING (engine)
LEFT JOIN request_names USING (engine, request_key)
WHERE
    judged.judged
    AND judged.observed_blocks > judged.estimated_blocks
    AND (judged.source, judged.scope) IN (('vstate', 'life'), ('stock', 'prefill'))
