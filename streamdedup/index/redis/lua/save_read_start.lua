-- Store where a process begins to read a partition.
-- include: _fence
--
-- ARGV[at+1]  key of the read start
-- ARGV[at+2]  the read start
redis.call('SET', ARGV[at + 1], ARGV[at + 2])
return 1
