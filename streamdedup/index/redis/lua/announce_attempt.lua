-- Store in one slot that an attempt at a batch is completely written (rule 11 of docs/delivery.md).
-- include: _fence
--
-- ARGV[used+1]    id of the attempt: digits of one length, so that the order of texts is that of attempts
-- ARGV[used+2..]  for each partition: key of its announced attempt, id of its committed attempt ('' for none), value to store: the
--                 id, the offset at which the batch begins, and the id of the committed attempt
-- Error BACK: the slot lacks a committed attempt, so the server has gone back to an earlier time.
local attempt = ARGV[used + 1]
local function announced(key)  -- the id, with which the value begins
  return string.sub(redis.call('GET', key) or '', 1, #attempt)
end
used = used + 1
for i = used + 1, #ARGV, 3 do
  if announced(ARGV[i]) < ARGV[i + 1] then
    return redis.error_reply('BACK ' .. ARGV[i])
  end
end
for i = used + 1, #ARGV, 3 do
  if announced(ARGV[i]) < attempt then
    redis.call('SET', ARGV[i], ARGV[i + 2])
  end
end
return 1
