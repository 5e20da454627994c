-- Store in one slot that an attempt at a batch is completely written (rule 11 of docs/delivery.md).
-- include: _fence
-- ARGV[used+1]    id of the attempt: digits of one length, so that the order of texts is that of attempts
-- ARGV[used+2..]  for each partition: key of its announced attempt, id of its committed attempt ('' for none), value to store: the
--                 id of the attempt, the offset at which the batch begins, and the committed id to store beside it
-- Error BACK: the slot does not know a committed attempt: the server has gone back to an earlier time, or another index was used.
-- Error SURPASSED: a later attempt is announced, which the caller has not seen when it made the id.
local attempt = ARGV[used + 1]
used = used + 1
for i = used + 1, #ARGV, 3 do
  local committed = ARGV[i + 1]
  -- The id of the announced attempt, and that of the committed one that was known then.
  local announced, known = string.match(redis.call('GET', ARGV[i]) or '', '^(%S+) %d+ (%S*)$')
  announced, known = announced or '', known or ''
  local is_known = committed == announced or committed <= known  -- as index.values.AnnouncedAttempt.knows
  local is_repeated = announced == attempt
  if not (is_known or is_repeated) then
    return redis.error_reply('BACK ' .. ARGV[i])
  end
  if announced > attempt then
    return redis.error_reply('SURPASSED ' .. announced .. ' ' .. attempt)
  end
end
for i = used + 1, #ARGV, 3 do
  redis.call('SET', ARGV[i], ARGV[i + 2])
end
return 1
