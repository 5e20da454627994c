-- Evict index entries of one slot, each if it is still the version of a time and a position (rule 12 of index/contract.py).
-- include: _fence
--
-- ARGV[at+1]    prefix of the keys of entries
-- ARGV[at+2..]  for each document: number (8 bytes), bytes 17 to the end of the partition of its entry (time, offset, length,
--               partition; index/entries.py)
local prefix = ARGV[at + 1]
at = at + 1
for i = 1, (#ARGV - at) / 2 do
  local key, listed = prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  if redis.call('GETRANGE', key, 17, 16 + #listed) == listed then
    redis.call('UNLINK', key)
  end
end
return 1
