-- The longest waits, each with its file and frame.
SELECT released_at, host, server_ip, server_port, held_role, round(wait_ms, 1) AS wait_ms, file, frame
FROM stalls ORDER BY stalls.wait_ms DESC, released_at, file, frame LIMIT 20;
