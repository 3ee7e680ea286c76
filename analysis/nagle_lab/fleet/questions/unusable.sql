-- Which files could not be read, or are not to be believed, and why?
SELECT series, packets, file, replace(problem, file || ': ', '') AS problem FROM files WHERE problem IS NOT NULL ORDER BY series, first_frame, file;
