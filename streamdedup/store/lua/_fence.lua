-- Put in front of every script that writes: refuse when a later generation owns one of the partitions concerned.
--
-- KEYS[1..n]  the fences of those partitions, in the slot that the script works on
-- ARGV[1..n]  our generation for each of them
-- Leaves behind: `at`, the index of the last argument used up.
--
-- An absent fence is refused too: we have set it, so the index was lost since.
for i, key in ipairs(KEYS) do
  local stored = redis.call('GET', key)
  if not stored then
    return redis.error_reply('UNFENCED ' .. key)
  end
  if tonumber(stored) > tonumber(ARGV[i]) then
    return redis.error_reply('FENCED ' .. stored .. ' ' .. ARGV[i])
  end
end
local at = #KEYS
