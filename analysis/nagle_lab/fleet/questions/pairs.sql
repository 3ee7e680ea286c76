-- Between which two ends: who held data back, and whose delayed ACK was awaited?
SELECT held_ip, held_role, delayed_ip, count(*) AS stalls, round(sum(wait_ms) / 1000, 1) AS lost_s,
       round(quantile_cont(wait_ms, 0.5), 1) AS wait_p50_ms
FROM stalls_once GROUP BY ALL ORDER BY lost_s DESC, held_ip, delayed_ip LIMIT 30;
