-- Insert documents into their buckets of one slot and return the other members. Each bucket is a set of document numbers. Insertion
-- and reading are one atomic step, so of two documents that race at least one sees the other.
--
-- After the fences: ARGV  prefix of bucket keys, lifetime in milliseconds ('0' for ever), cap ('0' for none), how many members of a
--   full bucket to return, band keys (4 bytes for each of n documents, joined), document numbers as decimal texts, joined by
--   spaces (a set of integers is compact).
-- Returns {{i, ...}, {i, ...}, i, members, i, members, ...}: the documents whose bucket is full, the documents whose bucket has at
--   least half of its cap in other members, then the index of each document with other members, and these. The document itself may
--   be among them.
local prefix, lifetime, cap, shown, band_keys = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), ARGV[at + 4], ARGV[at + 5]
local call, sub = redis.call, string.sub
local full, near_capacity = {}, {}
local result = {full, near_capacity}
local i = 0
for number in string.gmatch(ARGV[at + 6], '%S+') do
  i = i + 1
  local key = prefix .. sub(band_keys, 4 * i - 3, 4 * i)
  local count = call('SCARD', key)
  if cap > 0 and count >= cap and call('SISMEMBER', key, number) == 0 then
    near_capacity[#near_capacity + 1] = i
    full[#full + 1] = i
    result[#result + 1] = i
    result[#result + 1] = call('SRANDMEMBER', key, shown)
  else
    count = count + call('SADD', key, number)
    if cap > 0 and 2 * (count - 1) >= cap then
      near_capacity[#near_capacity + 1] = i
    end
    if lifetime ~= '0' then
      call('PEXPIRE', key, lifetime)
    end
    if count > 1 then
      result[#result + 1] = i
      result[#result + 1] = call('SMEMBERS', key)
    end
  end
end
return result
