-- Store the note of the process that begins to read a partition.
--
-- After the fence of the partition: ARGV  key of the attempt, its note.
redis.call('SET', ARGV[at + 1], ARGV[at + 2])
return 1
