-- Planned and real bytes per component: the largest of the workers of an engine, summed over data parallel ranks.
-- What grows while serving (an encoder's output, processed media) counts at its peak.
WITH figures AS (
    SELECT
        c.id,
        c.data_parallel_rank,
        c.holder,
        coalesce(max(m.component_bytes) FILTER (m.kind = 'planned'), max(c.engine_bytes)) AS planned_bytes,
        max(m.component_bytes) FILTER (m.kind = 'measured') AS observed_bytes
    FROM trace_memory AS m
    JOIN state_components AS c ON c.holder = m.engine AND c.component = m.component
    GROUP BY c.id, c.data_parallel_rank, c.holder
),

ranks AS (
    SELECT id, data_parallel_rank, max(planned_bytes) AS planned_bytes, max(observed_bytes) AS observed_bytes
    FROM figures
    GROUP BY id, data_parallel_rank
)

SELECT
    id,
    CAST(sum(planned_bytes) AS BIGINT) AS planned_bytes,
    CAST(sum(observed_bytes) AS BIGINT) AS observed_bytes
FROM ranks
GROUP BY id
ORDER BY id
