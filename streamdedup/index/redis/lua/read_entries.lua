-- Read index entries of one slot until they weigh a limit.
--
-- KEYS     the entries
-- ARGV[1]  limit in bytes
-- Returns the entries that were read, in order, without those behind the one that reaches the limit.
local limit, weight, result = tonumber(ARGV[1]), 0, {}
for i = 1, #KEYS do
  result[i] = redis.call('GET', KEYS[i])
  weight = weight + (result[i] and #result[i] or 0)
  if weight >= limit then
    break
  end
end
return result
