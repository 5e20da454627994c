-- Add documents to a HyperLogLog, which estimates how many there are.
-- KEYS[1]  the HyperLogLog
-- ARGV[1]  its time to live in milliseconds
-- ARGV[2]  document numbers (8 bytes each, joined)
local numbers, elements = ARGV[2], {}
for i = 1, #numbers / 8 do
  elements[i] = string.sub(numbers, 8 * i - 7, 8 * i)
end
-- The stack of Lua bounds the arguments of one command.
for first = 1, #elements, 1000 do
  redis.call('PFADD', KEYS[1], unpack(elements, first, math.min(first + 999, #elements)))
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
