-- Drop claims of one slot, each where it still belongs to a position.
--
-- After the fences: ARGV  prefix of claim keys, then for each pair its key and the position.
local prefix = ARGV[at + 1]
at = at + 1
for i = 1, (#ARGV - at) / 2 do
  local key, position = prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  if redis.call('GET', key) == position then
    redis.call('UNLINK', key)
  end
end
return 1
