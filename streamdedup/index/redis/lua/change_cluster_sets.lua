-- Add and remove members of the sets of clusters of one slot.
-- include: _fence _cluster_sets
--
-- ARGV[used+1]    prefix of the keys of sets; the number that names the cluster (8 bytes) follows
-- ARGV[used+2]    prefix of the keys of entries
-- ARGV[used+3]    time to live in milliseconds ('0' for ever)
-- ARGV[used+4]    most documents that join; a set with so many may lack further ones, so it takes no removals, and only forgets sources
-- ARGV[used+5..]  for each change: '+', '-' or '=' (only the counts), the cluster (8 bytes), and the member ('+') or number ('-') of the
--                 document
-- Returns for each change the counts of its cluster after all changes. So a repeated call has the same reply.
local prefix, entries, lifetime, limit = ARGV[used + 1], ARGV[used + 2], ARGV[used + 3], tonumber(ARGV[used + 4])
local sets, joins, replies = {}, {}, {}
used = used + 4
for i = 1, (#ARGV - used) / 3 do
  local change, number, document = ARGV[used + 3 * i - 2], ARGV[used + 3 * i - 1], ARGV[used + 3 * i]
  local set = sets[number] or read(prefix .. number)
  sets[number] = set
  if change == '+' then
    add_first(set, entries, number)
    if joined(set, number) < limit then
      add(set, document)
    end
    joins[number] = true
  elseif change == '-' then
    remove(set, document, joined(set, number) >= limit)
  end
end
for number, set in pairs(sets) do
  local key = prefix .. number
  if set.changed and set.members == '' then
    redis.call('UNLINK', key)  -- the rights of the daemon have no DEL
  elseif set.changed then
    redis.call('SET', key, char(math.floor(set.sources / 256), set.sources % 256) .. set.members, 'KEEPTTL')
  end
  if joins[number] and lifetime ~= '0' then
    redis.call('PEXPIRE', key, lifetime)
  end
  add_first(set, entries, number)
end
for i = 1, (#ARGV - used) / 3 do
  local number = ARGV[used + 3 * i - 1]
  replies[i] = counts(sets[number], number)
end
return replies
