-- How many series have which verdict, and why? Those without STALL or CLEAN need another capture.
SELECT verdict, count(*) AS series, sum(packets)::BIGINT AS packets, sum(stalls)::BIGINT AS stalls, min(series) AS for_instance, any_value(reason ORDER BY series) AS its_reason
FROM series GROUP BY verdict ORDER BY verdict;
