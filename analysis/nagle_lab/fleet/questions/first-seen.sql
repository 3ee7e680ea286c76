-- Since when does each service stall, and on which host was that seen first?
SELECT server_ip, server_port, min(released_at) AS first_seen, arg_min(host, released_at) AS first_host, arg_min(file, released_at) AS file,
       arg_min(frame, released_at) AS frame, count(*) AS stalls
FROM stalls_once GROUP BY ALL ORDER BY first_seen, server_ip, server_port LIMIT 50;
