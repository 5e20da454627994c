-- Buckets of one slot as sets. Included in the scripts of the layout "sets".
--
-- A bucket is a set of document numbers, which expires a lifetime after its last insertion. Numbers of expired documents would stay in it
-- as long as documents come. So an insertion that finds PARTED_FROM members or more parts the bucket: it renames the set, which becomes
-- the earlier part, takes no further members and expires a lifetime later. A new set is the later part, and is renamed in turn when the
-- earlier part has expired. A member is in only one part, and there is no earlier part without a later one.
--
-- Keys: K = prefix .. band key (the bucket, or its later part), K .. ':' (the earlier part).
local PARTED_FROM, call, sub = 16, redis.call, string.sub

local function earlier_part(key)
  return key .. ':'
end

local function joined(members, more)
  for _, member in ipairs(more) do
    members[#members + 1] = member
  end
  return members
end
