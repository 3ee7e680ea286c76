-- On which hosts was the most time lost?
SELECT host, count(*) AS stalls, round(sum(wait_ms) / 1000, 1) AS lost_s,
       count(DISTINCT (server_ip, server_port)) AS services, min(released_at) AS first_seen, max(released_at) AS last_seen
FROM stalls GROUP BY ALL ORDER BY lost_s DESC, host LIMIT 20;
