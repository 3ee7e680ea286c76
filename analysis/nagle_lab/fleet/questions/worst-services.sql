-- Which services lost the most time to stalls, and since when?
SELECT server_ip, server_port, count(*) AS stalls, round(sum(wait_ms) / 1000, 3) AS lost_s,
       round(quantile_cont(wait_ms, 0.5), 1) AS wait_p50_ms, any_value(h.hosts) AS hosts, min(released_at) AS first_seen, max(released_at) AS last_seen
FROM stalls_once
JOIN (SELECT server_ip, server_port, count(DISTINCT host) AS hosts FROM stalls GROUP BY ALL) h USING (server_ip, server_port)
GROUP BY ALL ORDER BY lost_s DESC, server_ip, server_port LIMIT 20;
