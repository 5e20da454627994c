-- Take entries from the head of a partition's list, as far as they stand there.
--
-- After the fences: ARGV  key of the list, then the entries, in order.
local key = ARGV[at + 1]
for i = at + 2, #ARGV do
  if redis.call('LINDEX', key, 0) ~= ARGV[i] then
    break
  end
  redis.call('LPOP', key)
end
return 1
