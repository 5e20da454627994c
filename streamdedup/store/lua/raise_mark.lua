-- Raise the mark of a partition, never lower it; return the mark before ('' when there was none).
--
-- KEYS  the guard and the fence of the partition, ARGV[1]  our generation: see _fence.lua
-- ARGV[2]  key of the mark
-- ARGV[3]  offset known to be committed
local stored = redis.call('GET', ARGV[at + 1])
if not stored or tonumber(stored) < tonumber(ARGV[at + 2]) then
  redis.call('SET', ARGV[at + 1], ARGV[at + 2])
end
return stored or ''
