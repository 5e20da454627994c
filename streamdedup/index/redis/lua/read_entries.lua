-- Read index entries of one slot until they reach a size.
-- KEYS     the entries
-- ARGV[1]  size in bytes
-- Returns the entries that were read, in order, up to the one that reaches the size.
local limit, size, result = tonumber(ARGV[1]), 0, {}
for i = 1, #KEYS do
  result[i] = redis.call('GET', KEYS[i])
  size = size + (result[i] and #result[i] or 0)
  if size >= limit then
    break
  end
end
return result
