-- Layout "sets": insert documents in their buckets of one slot; where a bucket existed, return its members. Insertion and reading are one
-- atomic step, so of two documents that are inserted at the same time at least one finds the other (rule 2).
-- include: _fence _sets
-- ARGV[used+1], ARGV[used+2]  prefix of the buckets, time to live in milliseconds ('0' for ever)
-- ARGV[used+3], ARGV[used+4]  cap of a bucket ('0' for none), number of members of a full bucket to return
-- ARGV[used+5], ARGV[used+6]  band keys (4 bytes for each of n documents, joined), n document numbers as decimal texts, joined by spaces
-- Returns {i, members, i, members, ...}: the number i (from 1 on) of each document whose bucket existed, and the members, the document
--   among them; -i and some members where the bucket is full, so that the document is not inserted.
local prefix, lifetime, cap, shown = ARGV[used + 1], tonumber(ARGV[used + 2]), tonumber(ARGV[used + 3]), ARGV[used + 4]
local band_keys, i, result = ARGV[used + 5], 0, {}
local time = call('TIME')
local expiry_ms = time[1] * 1000 + math.floor(time[2] / 1000) + lifetime
local expiry, parted_expiry = string.format('%.0f', expiry_ms), string.format('%.0f', expiry_ms + 1)
-- A bucket that is full after fewer than PART members is parted before.
local least_part = cap > 0 and math.max(1, math.min(PART, cap / 2)) or PART
for number in string.gmatch(ARGV[used + 6], '%S+') do
  i = i + 1
  local key = prefix .. sub(band_keys, 4 * i - 3, 4 * i)
  local added = call('SADD', key, number)
  -- Only a new bucket has no time to live yet. So an insertion in a new bucket, the usual case, needs only these two commands.
  local is_new = lifetime > 0 and call('PEXPIREAT', key, expiry, 'NX') == 1
  local count = is_new and 1 or call('SCARD', key)
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
      if lifetime > 0 then
        -- Never earlier: a daemon that has a longer retention may have set the time to live. Only such a daemon parts the bucket, because
        -- the later part may not expire before the earlier one.
        if earlier_count == 0 and count > least_part and call('PEXPIREAT', key, parted_expiry, 'GT') == 1 then
          call('SREM', key, number)
          call('RENAME', key, earlier)
          call('SADD', key, number)
          call('PEXPIREAT', key, parted_expiry)
          earlier_count = count - 1
        else
          call('PEXPIREAT', key, expiry, 'GT')
        end
      end
      local members = call('SMEMBERS', key)
      result[#result + 1] = i
      result[#result + 1] = earlier_count > 0 and joined(members, call('SMEMBERS', earlier)) or members
    end
  end
end
return result
