-- How to call a request: the id its client knows, else the engine's.
SELECT
    engine,
    key AS request_key,
    coalesce(
        max(value) FILTER (WHERE kind = 'external'), max(value) FILTER (WHERE kind = 'request')
    ) AS name
FROM trace_names
WHERE kind IN ('external', 'request')
GROUP BY engine, key
