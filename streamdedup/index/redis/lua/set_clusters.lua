-- Set the clusters of documents of one slot, each if the index entry is still the version of a position.
-- include: _fence
--
-- ARGV[at+1]    prefix of the keys of entries; the document number (8 bytes) follows
-- ARGV[at+2..]  for each document: number (8 bytes), bytes 25 to the end of the partition of its entry (offset, length, partition;
--               index/entries.py), cluster (8 bytes)
local prefix = ARGV[at + 1]
-- First bytes of an entry without a cluster and with one.
local ALONE, IN_CLUSTER = '\64', '\65'
at = at + 1
for i = 1, (#ARGV - at) / 3 do
  local key, position, cluster = prefix .. ARGV[at + 3 * i - 2], ARGV[at + 3 * i - 1], ARGV[at + 3 * i]
  local entry = redis.call('GET', key)
  if entry and string.sub(entry, 26, 25 + #position) == position then
    local last = string.sub(entry, 1, 1) == ALONE and -1 or -9
    -- A command that makes a string longer, such as APPEND, doubles its memory; SET allocates what the string needs.
    redis.call('SET', key, IN_CLUSTER .. string.sub(entry, 2, last) .. cluster, 'KEEPTTL')
  end
end
return 1
