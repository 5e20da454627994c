-- Name the clusters in the index entries of documents of one slot, each if the entry still has the position of the call.
-- include: _fence _cluster_sets
-- ARGV[used+1]    prefix of the keys of entries; the document number (8 bytes) follows
-- ARGV[used+2]    1 to replace another cluster in an entry too; 0 before the sets of the other clusters have changed: a repeated call
--                 must still read these clusters in the entries
-- ARGV[used+3..]  for each document: number (8 bytes), bytes 25 to the end of the partition of its entry (offset, length, partition;
--                 index/entries.py), cluster (8 bytes)
-- Returns for each document the cluster (8 bytes) that its entry named before, its own number where it was alone, and its member
--   (_cluster_sets.lua); empty where the entry was left alone.
local prefix, replace_other = ARGV[used + 1], ARGV[used + 2] == '1'
local replies = {}
used = used + 2
for i = 1, (#ARGV - used) / 3 do
  local number, position, cluster = ARGV[used + 3 * i - 2], ARGV[used + 3 * i - 1], ARGV[used + 3 * i]
  local entry = redis.call('GET', prefix .. number)
  local has_position = entry and sub(entry, 26, 25 + #position) == position  -- Lua counts bytes from 1
  local member = has_position and member_of(number, entry)
  replies[i] = ''
  if member then
    local first_byte = byte(entry, 1)
    local is_alone = first_byte % 2 == 0
    replies[i] = (is_alone and number or sub(entry, -8)) .. member
    if is_alone or replace_other then
      -- SET, which allocates what the string needs: a command that makes a string longer, such as APPEND, doubles its memory.
      local rest = sub(entry, 2, is_alone and -1 or -9)
      redis.call('SET', prefix .. number, char(is_alone and first_byte + 1 or first_byte) .. rest .. cluster, 'KEEPTTL')
    end
  end
end
return replies
