-- Replace the announced attempt of a staging index by the committed attempts, in one slot (rule 11 of index/contract.py).
-- include: _fence
--
-- ARGV[at+1]    id of the staging index's attempt
-- ARGV[at+2..]  for each partition: key of its announced attempt, id of its committed attempt ('' for none)
-- Error BACK: the announced attempt is not that of the staging index, so the server has gone back to before the rebuild.
local staging = ARGV[at + 1]
at = at + 1
for i = 1, (#ARGV - at) / 2 do
  local key, attempt = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local stored = redis.call('GET', key)
  -- A repeated call finds the committed attempt.
  if stored ~= staging and (stored or '') ~= attempt then
    return redis.error_reply('BACK ' .. key)
  end
  if attempt == '' then
    redis.call('UNLINK', key)
  else
    redis.call('SET', key, attempt)
  end
end
return 1
