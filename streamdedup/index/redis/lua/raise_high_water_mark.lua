-- Raise the high-water mark of a partition; lower it only where the topic was created again (rule 6, index.values.is_recreated).
-- include: _fence
-- ARGV[used+1]  key of the high-water mark: '<offset> <incarnation> <id of the topic> <ids that it had before, latest first>'
-- ARGV[used+2]  committed offset
-- ARGV[used+3]  id of the topic ('' when unknown)
-- ARGV[used+4]  offset after the last record of the partition ('' when unknown)
-- ARGV[used+5]  incarnation of the topic where no high-water mark is stored
-- Returns {high-water mark before (-1 for none), high-water mark now, incarnation, 1 when this call began the incarnation, else 0}.
-- Error RECREATED: the topic had this id before, so the caller has polled before the topic was deleted.
local key, offset = ARGV[used + 1], tonumber(ARGV[used + 2])
local topic_id, log_end = ARGV[used + 3], tonumber(ARGV[used + 4])
local pattern = '^(%d+) (%d+) (%S*) (.*)$'
local previous, incarnation, known_id, earlier = string.match(redis.call('GET', key) or '', pattern)
previous = tonumber(previous or -1)
incarnation = tonumber(incarnation or ARGV[used + 5])
known_id, earlier = known_id or '', earlier or ''
if topic_id ~= '' and string.find(' ' .. earlier .. ' ', ' ' .. topic_id .. ' ', 1, true) then
  return redis.error_reply('RECREATED ' .. known_id .. ' ' .. topic_id)
end
local is_other = known_id ~= '' and topic_id ~= '' and known_id ~= topic_id
local recreated = previous >= 0 and (is_other or (log_end ~= nil and log_end < previous))
local high_water_mark = math.max(previous, offset)
if recreated then
  if is_other then
    earlier = known_id .. ' ' .. earlier
  end
  high_water_mark, incarnation = offset, incarnation + 1
end
if topic_id ~= '' then
  known_id = topic_id
end
redis.call('SET', key, string.format('%.0f %d %s %s', high_water_mark, incarnation, known_id, earlier))
return {previous, high_water_mark, incarnation, recreated and 1 or 0}
