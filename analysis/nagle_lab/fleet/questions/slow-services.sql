-- How long do exchanges take, by service, and what share of that time is stalls?
SELECT e.server_ip, e.server_port, e.exchanges, round(e.total_s / e.exchanges * 1000, 2) AS mean_ms, e.p50_ms_at_most, e.p99_ms_at_most,
       round(least(100 * coalesce(s.lost_s, 0) / nullif(e.total_s, 0), 100), 1) AS of_all_time_percent  -- stalls of unanswered exchanges, too
FROM (SELECT server_ip, server_port, sum(n)::BIGINT AS exchanges, sum(total_ms) / 1000 AS total_s,
             min(to_ms) FILTER (WHERE upto >= 0.5 * of) AS p50_ms_at_most, min(to_ms) FILTER (WHERE upto >= 0.99 * of) AS p99_ms_at_most
      FROM (SELECT *, sum(n) OVER (PARTITION BY server_ip, server_port ORDER BY to_ms) AS upto,
                   sum(n) OVER (PARTITION BY server_ip, server_port) AS of
            FROM (SELECT server_ip, server_port, to_ms, sum(exchanges) AS n, sum(total_ms) AS total_ms FROM exchanges GROUP BY ALL))
      GROUP BY ALL) e
LEFT JOIN (SELECT server_ip, server_port, sum(wait_ms) / 1000 AS lost_s FROM stalls GROUP BY ALL) s USING (server_ip, server_port)
ORDER BY of_all_time_percent DESC, e.total_s DESC, e.server_ip, e.server_port LIMIT 30;
