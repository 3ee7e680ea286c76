-- At which hours of the day (UTC) is the time lost?
SELECT hour(released_at) AS hour, count(*) AS stalls, round(sum(wait_ms) / 1000, 1) AS lost_s, count(DISTINCT host) AS hosts
FROM stalls_once GROUP BY ALL ORDER BY hour;
