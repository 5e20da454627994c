-- Store index entries and markers of one slot, each where there is nothing or an earlier position.
--
-- After the fences: ARGV  prefix of the entries' keys, lifetimes of entries and of markers in milliseconds ('0' for ever), then as
--   for insert_entries: document numbers, lengths of the entries, the entries.
local prefix, entry_lifetime, marker_lifetime = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
for _, number, entry in entries(ARGV[at + 4], ARGV[at + 5], ARGV[at + 6]) do
  local key = prefix .. number
  local stored, new = redis.call('GET', key), parse(entry)
  local state = stored and decide(parse(stored), new) or CREATED
  if state == CREATED or state == REPLACED then
    store(key, entry, new.id == '' and marker_lifetime or entry_lifetime)
  end
end
return 1
