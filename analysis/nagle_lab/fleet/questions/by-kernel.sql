-- Between which kernels, as their SYNs look: how many exchanges stall, and what does that cost?
SELECT coalesce(client_kernel, 'unknown') AS client, coalesce(server_kernel, 'unknown') AS server,
       count(*) AS connections, sum(exchanges) AS exchanges, sum(stalls) AS stalls,
       round(100.0 * sum(stalled_exchanges) / nullif(sum(exchanges), 0), 1) AS stalled_percent,
       round(sum(lost_ms) / 1000, 1) AS lost_s
FROM connections GROUP BY ALL ORDER BY lost_s DESC, connections DESC, client, server;
