-- Layout "sets": insert documents in their buckets of one slot; where a bucket existed, return its members. Insertion and reading are one
-- atomic step, so of two documents that are inserted at the same time at least one finds the other (rule 2).
-- include: _fence _sets
-- ARGV[used+1]  prefix of the buckets
-- ARGV[used+2]  time to live in milliseconds
-- ARGV[used+3]  cap of a bucket ('0' for none)
-- ARGV[used+4]  number of members of a full bucket to return
-- ARGV[used+5]  band keys (4 bytes for each of n documents, joined)
-- ARGV[used+6]  n document numbers as decimal texts, joined by spaces
-- Returns {i, members, i, members, ...}: the row i (from 1 on) of each document whose bucket existed, and the members, the document
--   among them; -i and some members where the bucket is full, so that the document is not inserted.
local prefix, lifetime = ARGV[used + 1], tonumber(ARGV[used + 2])
local cap, shown = tonumber(ARGV[used + 3]), tonumber(ARGV[used + 4])
local band_keys, i, result = ARGV[used + 5], 0, {}
local time = call('TIME')
local expiry_ms = time[1] * 1000 + math.floor(time[2] / 1000) + lifetime
local expiry = string.format('%.0f', expiry_ms)
-- 1 ms later, so that GT also succeeds where this call has just set the expiry: TIME is the same in the whole script.
local parted_expiry = string.format('%.0f', expiry_ms + 1)
-- Half of a small cap, because a full bucket takes no insertion that would part it.
local parted_from = cap > 0 and math.max(1, math.min(PARTED_FROM, cap / 2)) or PARTED_FROM

-- Part a bucket: `number` begins the later part. The earlier part, the others, must not outlive it, so a bucket with a later expiry, set
-- by a daemon with a longer retention, stays whole. Return whether the bucket was parted.
local function part(key, number)
  if call('PEXPIREAT', key, parted_expiry, 'GT') == 0 then
    return false
  end
  call('SREM', key, number)
  call('RENAME', key, earlier_part(key))
  call('SADD', key, number)
  call('PEXPIREAT', key, parted_expiry)
  return true
end

for number in string.gmatch(ARGV[used + 6], '%S+') do
  i = i + 1
  local key = prefix .. sub(band_keys, 4 * i - 3, 4 * i)
  local added = call('SADD', key, number)
  -- Only a new bucket has no time to live yet: its insertion, the usual case, needs only these two commands.
  local count = call('PEXPIREAT', key, expiry, 'NX') == 1 and 1 or call('SCARD', key)
  if count > added then  -- the bucket existed
    local earlier = earlier_part(key)
    local earlier_count = call('SCARD', earlier)
    if earlier_count > 0 and added == 1 and call('SREM', earlier, number) == 1 then  -- it was a member
      added = 0
    end
    if cap > 0 and added == 1 and count + earlier_count > cap then
      call('SREM', key, number)
      local members = call('SRANDMEMBER', key, shown)
      result[#result + 1], result[#result + 2] = -i, joined(members, call('SRANDMEMBER', earlier, shown - #members))
    else
      if earlier_count == 0 and count > parted_from and part(key, number) then
        earlier_count = count - 1
      else
        -- GT: a daemon with a longer retention may have set the time to live, which never gets shorter.
        call('PEXPIREAT', key, expiry, 'GT')
      end
      local members = call('SMEMBERS', key)
      result[#result + 1] = i
      result[#result + 1] = earlier_count > 0 and joined(members, call('SMEMBERS', earlier)) or members
    end
  end
end
return result
