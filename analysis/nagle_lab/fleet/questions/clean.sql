-- Which series are clean, and by how many exchanges?
SELECT series, exchanges, connections, first_at, last_at FROM series WHERE verdict = 'CLEAN' ORDER BY exchanges DESC, series LIMIT 50;
