-- The set of a cluster: the documents that joined the first one, and the first one itself. Included in the scripts of clusters.
-- The specification is index/cluster_sets.py; index/entries.py decodes the counts.
--
-- A set is a string: the number of distinct sources (2 bytes), then for each document a member of 24 bytes, the earliest first:
--   document number (8 bytes), record time (6, signed; a time beyond their range is the nearest one in it), lowest byte of the
--   partition (1), lowest bytes of the offset (4), first bytes of the source hash (5; zeros where unknown)
-- Partition and offset order documents of the same millisecond. The first document counts in the size also where it is no member.
local MEMBER, NO_SOURCE = 24, '\0\0\0\0\0'
-- Bytes of a member at which its document number and its source begin.
local NUMBER, SOURCE = 1, 20
local byte, char, find, sub = string.byte, string.char, string.find, string.sub

-- The record time of an entry in 6 bytes: the last 6 of its 8, or the nearest time in their range.
local function time_of(entry)
  local first, second, third = byte(entry, 18, 20)
  local sign = third < 128 and 0 or 255
  if first == sign and second == sign then return sub(entry, 20, 25) end
  return first < 128 and '\127\255\255\255\255\255' or '\128\0\0\0\0\0'
end

-- The member for an index entry; nil for a deletion marker. Layout of an entry: index/entries.py, which counts bytes from 0. From 1 on,
-- bytes 26 to 33 are the offset, 34 and 35 the length of the partition, which begins at byte 36.
local function member_of(number, entry)
  local flags, partition_end = byte(entry, 1) % 4, 35 + byte(entry, 34) * 256 + byte(entry, 35)
  if sub(entry, partition_end + 1, partition_end + 2) == '\0\0' then return nil end
  local source_end = #entry - 8 * (flags % 2)
  local source = flags >= 2 and sub(entry, source_end - 7, source_end - 3) or NO_SOURCE
  local partition = string.match(sub(entry, 36, partition_end), '%d+$')
  return number .. time_of(entry) .. char(partition % 256) .. sub(entry, 30, 33) .. source
end

-- The start of the first member that has `bytes` at `field`, NUMBER or SOURCE; nil for none.
local function member_with(set, field, bytes)
  local from = 1
  while true do
    local at = find(set.members, bytes, from, true)
    if not at then return nil end
    if (at - field) % MEMBER == 0 then return at - field + 1 end
    from = at + 1
  end
end

-- The time of the member at `at`; its partition and offset as one number.
local function order(members, at)
  local t1, t2, t3, t4, t5, t6, p, o1, o2, o3, o4 = byte(members, at + 8, at + 18)
  if t1 >= 128 then t1 = t1 - 256 end
  return ((((t1 * 256 + t2) * 256 + t3) * 256 + t4) * 256 + t5) * 256 + t6, (((p * 256 + o1) * 256 + o2) * 256 + o3) * 256 + o4
end

-- Add a member unless its document is in the set.
local function add(set, member)
  if member_with(set, NUMBER, sub(member, 1, 8)) then return end
  set.changed = true
  local source = sub(member, SOURCE, 24)
  if source ~= NO_SOURCE and not member_with(set, SOURCE, source) then
    set.sources = set.sources + 1
  end
  local time, order_in_time = order(member, 1)
  local last = #set.members  -- documents join in about the order of their times
  while last > 0 do
    local other_time, other_order = order(set.members, last - MEMBER + 1)
    if other_time < time or (other_time == time and other_order <= order_in_time) then break end
    last = last - MEMBER
  end
  set.members = sub(set.members, 1, last) .. member .. sub(set.members, last + 1)
end

-- Remove the member of a document, or only its source.
local function remove(set, number, only_source)
  local at = member_with(set, NUMBER, number)
  if not at then return end
  set.changed = true
  local source, kept = sub(set.members, at + 19, at + 23), ''
  if only_source then
    kept = sub(set.members, at, at + 18) .. NO_SOURCE
  end
  set.members = sub(set.members, 1, at - 1) .. kept .. sub(set.members, at + MEMBER)
  if source ~= NO_SOURCE and not member_with(set, SOURCE, source) then
    set.sources = set.sources - 1
  end
end

local function read(key)
  local stored = redis.call('GET', key)
  if not stored then return {sources = 0, members = '', is_new = true} end
  return {sources = byte(stored, 1) * 256 + byte(stored, 2), members = sub(stored, 3)}
end

-- Add the first document, whose entry is in the same slot.
local function add_first(set, entries, number)
  if member_with(set, NUMBER, number) then return end
  local entry = redis.call('GET', entries .. number)
  local member = entry and member_of(number, entry)
  if member then add(set, member) end
end

-- Number of documents that joined the first one, which itself is not counted.
local function joined(set, number)
  return #set.members / MEMBER - (member_with(set, NUMBER, number) and 1 or 0)
end

-- The counts of a cluster: size and sources (2 bytes each), number and time of the earliest document (8, 6), time of the latest one (6).
local function counts(set, number)
  local size, members = 1 + joined(set, number), set.members
  local head = char(math.floor(size / 256), size % 256, math.floor(set.sources / 256), set.sources % 256)
  if members == '' then return head .. string.rep('\0', 20) end
  return head .. sub(members, 1, 14) .. sub(members, -16, -11)
end
