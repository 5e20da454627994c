-- Remove entries from the head of a partition's list, up to the first that is not there (rule 12 of index/contract.py).
-- include: _fence
--
-- ARGV[at+1]    number n of slices
-- ARGV[at+2..]  keys of the n slices, oldest first, then the entries in order
local slices_count = tonumber(ARGV[at + 1])
local entry = at + 2 + slices_count
for slice = at + 2, at + 1 + slices_count do
  while entry <= #ARGV do
    local head = redis.call('LINDEX', ARGV[slice], 0)
    if not head then
      break
    end
    if head ~= ARGV[entry] then
      return 1
    end
    redis.call('LPOP', ARGV[slice])
    entry = entry + 1
  end
end
return 1
