-- Raise the mark of a partition, never lower it; return the mark before ('' when there was none).
--
-- After the fence of the partition: ARGV  key of the mark, offset known to be committed.
local stored = redis.call('GET', ARGV[at + 1])
if not stored or tonumber(stored) < tonumber(ARGV[at + 2]) then
  redis.call('SET', ARGV[at + 1], ARGV[at + 2])
end
return stored or ''
