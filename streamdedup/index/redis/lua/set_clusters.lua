-- Set the clusters of documents of one slot, each if the index entry is still the version of a position.
-- include: _fence
--
-- ARGV[used+1]    prefix of the keys of entries; the document number (8 bytes) follows
-- ARGV[used+2..]  for each document: number (8 bytes), bytes 25 to the end of the partition of its entry (offset, length, partition;
--                 index/entries.py), cluster (8 bytes)
-- Returns for each document the cluster (8 bytes) that its entry named before: its own number where it was alone; empty where the
--   entry was left alone.
local prefix = ARGV[used + 1]
-- First bytes of an entry without a cluster and with one.
local ALONE, IN_CLUSTER = '\16', '\17'
local replies = {}
used = used + 1
for i = 1, (#ARGV - used) / 3 do
  local number, position, cluster = ARGV[used + 3 * i - 2], ARGV[used + 3 * i - 1], ARGV[used + 3 * i]
  local entry = redis.call('GET', prefix .. number)
  replies[i] = ''
  if entry and string.sub(entry, 26, 25 + #position) == position then  -- Lua counts bytes from 1
    local is_alone = string.sub(entry, 1, 1) == ALONE
    replies[i] = is_alone and number or string.sub(entry, -8)
    -- SET, which allocates what the string needs: a command that makes a string longer, such as APPEND, doubles its memory.
    local rest = string.sub(entry, 2, is_alone and -1 or -9)
    redis.call('SET', prefix .. number, IN_CLUSTER .. rest .. cluster, 'KEEPTTL')
  end
end
return replies
