-- Store in one slot that an attempt at a batch is completely written (rule 11 of docs/delivery.md).
-- include: _fence
--
-- ARGV[used+1]    id of the attempt: digits of one length, so that the order of texts is that of attempts
-- ARGV[used+2..]  for each partition: key of its announced attempt, id of its committed attempt ('' for none), value to store: the
--                 id, the offset at which the batch begins, and the id of the committed attempt
-- Error BACK: the slot does not know a committed attempt: the server has gone back to an earlier time, or another index was used.
local attempt = ARGV[used + 1]
local function stored(key)  -- the id of the announced attempt, and that of the committed one that was known then
  local announced, known_id = string.match(redis.call('GET', key) or '', '^(%S+) %d+ (%S*)$')
  return announced or '', known_id or ''
end
local function knows(key, committed_id)  -- as index.values.is_known_attempt
  local announced, known_id = stored(key)
  return committed_id == announced or committed_id <= known_id
end
used = used + 1
for i = used + 1, #ARGV, 3 do
  if not knows(ARGV[i], ARGV[i + 1]) then
    return redis.error_reply('BACK ' .. ARGV[i])
  end
end
for i = used + 1, #ARGV, 3 do
  if stored(ARGV[i]) < attempt then
    redis.call('SET', ARGV[i], ARGV[i + 2])
  end
end
return 1
