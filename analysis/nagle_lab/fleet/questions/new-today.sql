-- Which services stalled on the last day for the first time?
SELECT server_ip, server_port, min(released_at) AS first_seen, count(*) AS stalls, round(sum(wait_ms) / 1000, 1) AS lost_s
FROM stalls_once GROUP BY ALL HAVING min(day) = (SELECT max(day) FROM exchanges)
ORDER BY lost_s DESC, server_ip, server_port LIMIT 50;
