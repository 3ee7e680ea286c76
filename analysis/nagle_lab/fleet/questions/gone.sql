-- Which services stalled once, but not on the last day, although they answered?
SELECT s.server_ip, s.server_port, count(*) AS stalls, max(s.released_at) AS last_seen
FROM stalls_once s
GROUP BY ALL
HAVING max(s.day) < (SELECT max(day) FROM exchanges)
   AND (s.server_ip, s.server_port) IN (
       SELECT (server_ip, server_port) FROM exchanges WHERE day = (SELECT max(day) FROM exchanges))
ORDER BY last_seen, s.server_ip, s.server_port LIMIT 50;
