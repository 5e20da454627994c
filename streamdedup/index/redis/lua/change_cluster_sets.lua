-- Add and remove members of the sets of clusters of one slot: the documents that joined the first document.
-- include: _fence
--
-- ARGV[used+1]    prefix of the keys of sets; the number that names the cluster (8 bytes) follows
-- ARGV[used+2]    time to live in milliseconds ('0' for ever)
-- ARGV[used+3]    largest number of members of a set; a set with so many may lack further ones, so it takes no removals
-- ARGV[used+4..]  for each change: '+', '-' or '=' (only the size), the cluster (8 bytes), the document number as decimal text
-- Returns for each change the size of its cluster after all changes, the first document included. So a repeated call has the same reply.
local prefix, lifetime, limit = ARGV[used + 1], ARGV[used + 2], tonumber(ARGV[used + 3])
local counts, sizes = {}, {}
used = used + 3
for i = 1, (#ARGV - used) / 3 do
  local change, key, member = ARGV[used + 3 * i - 2], prefix .. ARGV[used + 3 * i - 1], ARGV[used + 3 * i]
  local count = counts[key] or redis.call('SCARD', key)
  if change == '+' then
    if count < limit then
      count = count + redis.call('SADD', key, member)
    end
    if lifetime ~= '0' then
      redis.call('PEXPIRE', key, lifetime)
    end
  elseif change == '-' and count < limit then
    count = count - redis.call('SREM', key, member)
  end
  counts[key] = count
end
for i = 1, (#ARGV - used) / 3 do
  sizes[i] = 1 + counts[prefix .. ARGV[used + 3 * i - 1]]
end
return sizes
