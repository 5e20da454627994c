-- Raise the mark of a partition, never lower it within one incarnation of the topic (store.base.is_recreated).
--
-- After the fence of the partition: ARGV  key of the mark, key of the watermarks, field of the partition there, offset known to be
--   committed, id of the topic ('' when unknown), offset behind the last record of the partition ('' when unknown).
-- The mark is kept as '<offset> <incarnation> <id of the topic> <ids that it had before, latest first>'.
-- Returns {mark before (-1 when there was none), mark, incarnation, 1 when this call began the incarnation}.
local key, watermarks, field, offset = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4])
local topic_id, log_end = ARGV[at + 5], tonumber(ARGV[at + 6])
local pattern = '^(%d+) ?(%d*) ?(%S*) ?(.*)$'
local before, incarnation, known_id, earlier = string.match(redis.call('GET', key) or '', pattern)
before, incarnation, known_id, earlier = tonumber(before or -1), tonumber(incarnation or 0), known_id or '', earlier or ''
if topic_id ~= '' and string.find(' ' .. earlier .. ' ', ' ' .. topic_id .. ' ', 1, true) then
  -- Polled before the topic was deleted, by a process that has not heard of it.
  return redis.error_reply('RECREATED ' .. known_id .. ' ' .. topic_id)
end
local is_other = known_id ~= '' and topic_id ~= '' and known_id ~= topic_id
local recreated = before >= 0 and (is_other or (log_end ~= nil and log_end < before))
local mark = math.max(before, offset)
if recreated then
  if is_other then
    earlier = known_id .. ' ' .. earlier
  end
  mark, incarnation, known_id = offset, incarnation + 1, is_other and topic_id or known_id
  redis.call('HDEL', watermarks, field)
end
if topic_id ~= '' then
  known_id = topic_id
end
redis.call('SET', key, string.format('%.0f %d %s %s', mark, incarnation, known_id, earlier))
return {before, mark, incarnation, recreated and 1 or 0}
