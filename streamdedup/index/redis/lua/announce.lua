-- Note in one slot that an attempt at a batch is completely written.
--
-- After the fences: ARGV  name of the attempt, then for each partition the key of its announcement and the name of the attempt
--   that is known to be committed ('' for none). Names are digits of one length, so that the order of texts is that of attempts.
local name = ARGV[at + 1]
at = at + 1
for i = 1, (#ARGV - at) / 2 do
  local stored = redis.call('GET', ARGV[at + 2 * i - 1]) or ''
  if stored < ARGV[at + 2 * i] then
    return redis.error_reply('BACK ' .. ARGV[at + 2 * i - 1])
  end
end
for i = 1, (#ARGV - at) / 2 do
  local key = ARGV[at + 2 * i - 1]
  if (redis.call('GET', key) or '') < name then
    redis.call('SET', key, name)
  end
end
return 1
