-- Store index entries and deletion markers of one slot, each where nothing or an earlier position is stored (rule 3).
-- include: _fence _entries
-- ARGV[used+1]     prefix of the keys of entries; the document number (8 bytes) follows
-- ARGV[used+2]     time to live of entries in milliseconds
-- ARGV[used+3]     time to live of deletion markers in milliseconds
-- ARGV[used+4..6]  numbers, lengths and entries, as for insert_entries
local prefix, entry_lifetime, marker_lifetime = ARGV[used + 1], ARGV[used + 2], ARGV[used + 3]
for _, number, entry in entries(ARGV[used + 4], ARGV[used + 5], ARGV[used + 6]) do
  local key = prefix .. number
  local stored, new = redis.call('GET', key), parse(entry)
  local state = stored and decide(parse(stored), new) or CREATED
  if state == CREATED or state == REPLACED then
    local lifetime = new.id == '' and marker_lifetime or entry_lifetime
    redis.call('SET', key, entry, 'PX', lifetime)
  end
end
return 1
