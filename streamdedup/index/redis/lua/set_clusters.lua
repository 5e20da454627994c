-- Set the cluster of documents of one slot, where the index entry is still the version meant.
--
-- After the fences: ARGV  prefix of the entries' keys, then for each document its number (8 bytes), bytes 25 to the end of the
--   partition of its entry (offset, length, partition: the position), and the cluster (8 bytes).
local prefix = ARGV[at + 1]
local ALONE, IN_CLUSTER = '\48', '\49'
at = at + 1
for i = 1, (#ARGV - at) / 3 do
  local key, position, cluster = prefix .. ARGV[at + 3 * i - 2], ARGV[at + 3 * i - 1], ARGV[at + 3 * i]
  local entry = redis.call('GET', key)
  if entry and string.sub(entry, 26, 25 + #position) == position then
    if string.sub(entry, 1, 1) == ALONE then
      redis.call('APPEND', key, cluster)
      redis.call('SETRANGE', key, 0, IN_CLUSTER)
    else
      redis.call('SETRANGE', key, #entry - 8, cluster)
    end
  end
end
return 1
