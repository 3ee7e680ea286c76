-- Which two writes: what sizes do services send apart?
SELECT server_ip, server_port, trigger_bytes, mode(released_bytes) AS released_bytes_most_often, count(*) AS stalls,
       round(sum(wait_ms) / 1000, 1) AS lost_s, min(file) AS file, arg_min(frame, file) AS frame
FROM stalls_once GROUP BY ALL ORDER BY stalls DESC, server_ip, server_port, trigger_bytes LIMIT 30;
