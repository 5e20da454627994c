-- Put in one slot what is announced of partitions in the place of a draft's announcement.
--
-- After the fences: ARGV  name of the draft, then for each partition the key of its announcement and what to set ('' for nothing).
-- Only the draft's own announcement is replaced: a server that has gone back to before the draft must not look as if it had not.
local draft = ARGV[at + 1]
at = at + 1
for i = 1, (#ARGV - at) / 2 do
  local key, name = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local stored = redis.call('GET', key)
  -- A call that is repeated finds what the first has set.
  if stored ~= draft and (stored or '') ~= name then
    return redis.error_reply('BACK ' .. key)
  end
  if name == '' then
    redis.call('UNLINK', key)
  else
    redis.call('SET', key, name)
  end
end
return 1
