-- What did stalls cost, day by day?
SELECT e.day, e.exchanges, coalesce(o.stalls, 0) AS stalls, round(100.0 * coalesce(s.stalled, 0) / e.exchanges, 2) AS stalled_percent,
       round(coalesce(o.lost_s, 0), 1) AS lost_s, round(100 * coalesce(s.lost_s, 0) / nullif(e.total_s, 0), 1) AS of_all_time_percent
FROM (SELECT day, sum(exchanges)::BIGINT AS exchanges, sum(total_ms) / 1000 AS total_s FROM exchanges GROUP BY day) e  -- as recorded
LEFT JOIN (SELECT day, count(DISTINCT (series, connection, exchange)) AS stalled, sum(wait_ms) / 1000 AS lost_s
           FROM stalls GROUP BY day) s USING (day)  -- as recorded, too, for the shares
LEFT JOIN (SELECT day, count(*) AS stalls, sum(wait_ms) / 1000 AS lost_s FROM stalls_once GROUP BY day) o USING (day)
ORDER BY e.day;
