-- How to call a request: the id its client knows, else the engine's. A client may send any number
-- of characters; of a long id both ends are told.
WITH ids AS (
    SELECT
        engine,
        key AS request_key,
        coalesce(
            max(value) FILTER (WHERE kind = 'external'), max(value) FILTER (WHERE kind = 'request')
        ) AS id
    FROM trace_names
    WHERE kind IN ('external', 'request')
    GROUP BY engine, key
)
SELECT
    engine,
    request_key,
    CASE WHEN length(id) > 120 THEN left(id, 80) || '...' || right(id, 20) ELSE id END AS name
FROM ids
