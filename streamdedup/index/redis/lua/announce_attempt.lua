-- Store in one slot that an attempt at a batch is completely written (rule 11 of index/contract.py).
-- include: _fence
--
-- ARGV[at+1]    id of the attempt: digits of one length, so that the order of texts is that of attempts
-- ARGV[at+2..]  for each partition: key of its announced attempt, id of its committed attempt ('' for none)
-- Error BACK: the slot lacks a committed attempt, so the server has gone back to an earlier time.
local attempt = ARGV[at + 1]
at = at + 1
for i = 1, (#ARGV - at) / 2 do
  local stored = redis.call('GET', ARGV[at + 2 * i - 1]) or ''
  if stored < ARGV[at + 2 * i] then
    return redis.error_reply('BACK ' .. ARGV[at + 2 * i - 1])
  end
end
for i = 1, (#ARGV - at) / 2 do
  local key = ARGV[at + 2 * i - 1]
  if (redis.call('GET', key) or '') < attempt then
    redis.call('SET', key, attempt)
  end
end
return 1
