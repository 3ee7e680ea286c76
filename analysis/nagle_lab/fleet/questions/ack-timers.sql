-- How long do the ends that delay their ACKs wait? Linux: 40 ms and more.
SELECT delayed_ip, count(*) AS stalls, round(quantile_cont(wait_ms, 0.05), 1) AS wait_p5_ms,
       round(quantile_cont(wait_ms, 0.5), 1) AS wait_p50_ms, round(quantile_cont(wait_ms, 0.95), 1) AS wait_p95_ms
FROM stalls_once GROUP BY ALL ORDER BY stalls DESC, delayed_ip LIMIT 30;
