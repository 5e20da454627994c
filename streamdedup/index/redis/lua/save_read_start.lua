-- Store where a process begins to read a partition.
--
-- After the fence of the partition: ARGV  key of the read start, the read start.
redis.call('SET', ARGV[at + 1], ARGV[at + 2])
return 1
