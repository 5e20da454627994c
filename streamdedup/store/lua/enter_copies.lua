-- Documents enter the buckets of their contents and learn which others are there; adding and reading are one atomic step.
--
-- After the fences: ARGV  prefix of the keys, lifetime in milliseconds ('0' for ever), most members, then for each document
--   its content digest (16 bytes) and its number as a decimal text.
-- Returns {members, members, ...}: the others of each document.
local prefix, lifetime, cap = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
at = at + 3
local result = {}
for i = 1, (#ARGV - at) / 2 do
  local key, number = prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  redis.call('SADD', key, number)
  local others = {}
  for _, member in ipairs(redis.call('SMEMBERS', key)) do
    if member ~= number then
      others[#others + 1] = member
    end
  end
  if #others >= cap then
    -- Any of them may go: all have the same content, and members are hints.
    redis.call('SREM', key, others[#others])
  end
  if lifetime ~= '0' then
    redis.call('PEXPIRE', key, lifetime)
  end
  result[i] = others
end
return result
