-- Save the pending matches of positions of one slot; a field that is saved already keeps its value (rule 4 of docs/delivery.md).
-- include: _fence
-- ARGV[used+1]    prefix of the keys; the text of the position follows
-- ARGV[used+2]    time to live in milliseconds
-- ARGV[used+3..]  for each position: its text, number m of fields, m times field and value (index/entries.py)
-- Returns for each position {field, value, field, value, ...}: everything that is saved for it.
local prefix, lifetime = ARGV[used + 1], ARGV[used + 2]
local start = used + 3  -- where the arguments of a position start
local result = {}
while start <= #ARGV do
  local key = prefix .. ARGV[start]
  local fields_count = tonumber(ARGV[start + 1])
  for i = 1, fields_count do
    redis.call('HSETNX', key, ARGV[start + 2 * i], ARGV[start + 2 * i + 1])
  end
  if fields_count > 0 then
    redis.call('PEXPIRE', key, lifetime)
  end
  result[#result + 1] = redis.call('HGETALL', key)
  start = start + 2 + 2 * fields_count
end
return result
