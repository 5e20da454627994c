-- Save the verified partners of positions of one slot; what was saved first for a pair stays.
--
-- After the fences: ARGV  prefix of partner keys, lifetime in milliseconds ('0' for ever), then for each position
--   its text, the number of pairs m, and m times pair key and match.
-- Returns for each position {pair key, match, pair key, match, ...}: all that is saved for it.
local prefix, lifetime = ARGV[at + 1], ARGV[at + 2]
at = at + 3
local result = {}
while at <= #ARGV do
  local key = prefix .. ARGV[at]
  local pairs_count = tonumber(ARGV[at + 1])
  for i = 1, pairs_count do
    redis.call('HSETNX', key, ARGV[at + 2 * i], ARGV[at + 2 * i + 1])
  end
  if pairs_count > 0 and lifetime ~= '0' then
    redis.call('PEXPIRE', key, lifetime)
  end
  result[#result + 1] = redis.call('HGETALL', key)
  at = at + 2 + 2 * pairs_count
end
return result
