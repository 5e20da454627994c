-- Add and remove members of the sets of clusters of one slot.
-- include: _fence _cluster_sets
-- ARGV[used+1]    prefix of the keys of sets; the number that names the cluster (8 bytes) follows
-- ARGV[used+2]    prefix of the keys of entries
-- ARGV[used+3]    time to live in milliseconds
-- ARGV[used+4]    most documents that may join a set. A full set may lack documents that came later: a removal keeps it full, and clears
--                 only the source of the member
-- ARGV[used+5..]  for each change: '+', '-' or '=' (only the counts), the number that names the cluster (8 bytes), and the document: its
--                 member ('+'), number ('-') or nothing ('=')
-- Returns for each change the counts of its cluster after all changes, so that a repeated call has the same reply.
local prefix, entries, lifetime, most_joined = ARGV[used + 1], ARGV[used + 2], ARGV[used + 3], tonumber(ARGV[used + 4])
local sets, joins, replies = {}, {}, {}
used = used + 4
for at = used + 1, #ARGV, 3 do
  local change, cluster, document = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local set = sets[cluster] or read(prefix .. cluster)
  sets[cluster] = set
  if change == '+' then
    add_first(set, entries, cluster)
    if joined(set, cluster) < most_joined then
      add(set, document)
    end
    joins[cluster] = true
  elseif change == '-' then
    remove(set, document, joined(set, cluster) >= most_joined)
  end
end
for cluster, set in pairs(sets) do
  local key = prefix .. cluster
  if set.changed and set.members == '' then
    redis.call('UNLINK', key)  -- the rights of the daemon have no DEL
  elseif set.changed then
    redis.call('SET', key, char(math.floor(set.sources / 256), set.sources % 256) .. set.members, 'KEEPTTL')
  end
  if joins[cluster] then
    redis.call('PEXPIRE', key, lifetime, set.is_new and 'NX' or 'GT')  -- never shorter, as in insert_sets.lua
  end
  add_first(set, entries, cluster)  -- for the reply only: stored when a document joins
end
for at = used + 1, #ARGV, 3 do
  local cluster = ARGV[at + 1]
  replies[#replies + 1] = counts(sets[cluster], cluster)
end
return replies
