-- Layout "sets": insert documents in their buckets of one slot; where a bucket existed, return its members. Insertion and reading are one
-- atomic step, so of two documents that are inserted at the same time at least one finds the other (rule 2).
-- include: _fence
-- ARGV[used+1], ARGV[used+2]  prefix of the buckets, time to live in milliseconds ('0' for ever)
-- ARGV[used+3], ARGV[used+4]  cap of a bucket ('0' for none), number of members of a full bucket to return
-- ARGV[used+5], ARGV[used+6]  band keys (4 bytes for each of n documents, joined), n document numbers as decimal texts, joined by spaces
-- Returns {i, members, i, members, ...}: the number i (from 1 on) of each document whose bucket existed, and the members, the document
--   among them; -i and some members where the bucket is full, so that the document is not inserted.
local prefix, lifetime, cap, shown = ARGV[used + 1], tonumber(ARGV[used + 2]), tonumber(ARGV[used + 3]), ARGV[used + 4]
local call, sub, band_keys, i, result = redis.call, string.sub, ARGV[used + 5], 0, {}
local time = call('TIME')
local expiry = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lifetime)
for number in string.gmatch(ARGV[used + 6], '%S+') do
  i = i + 1
  local key = prefix .. sub(band_keys, 4 * i - 3, 4 * i)
  local added = call('SADD', key, number)
  -- Only a new bucket has no time to live yet. So an insertion in a new bucket, the usual case, needs only these two commands.
  local is_new = lifetime > 0 and call('PEXPIREAT', key, expiry, 'NX') == 1
  local count = is_new and 1 or call('SCARD', key)
  if cap > 0 and added == 1 and count > cap then
    call('SREM', key, number)
    result[#result + 1], result[#result + 2] = -i, call('SRANDMEMBER', key, shown)
  elseif count > added then  -- the bucket existed
    if lifetime > 0 then
      call('PEXPIREAT', key, expiry)
    end
    result[#result + 1], result[#result + 2] = i, call('SMEMBERS', key)
  end
end
return result
