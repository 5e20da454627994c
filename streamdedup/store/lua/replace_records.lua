-- Store document records and markers of one slot, each where nothing stands or an earlier position.
--
-- After the fences: ARGV  prefix of record keys, lifetimes of records and of markers in milliseconds ('0' for ever), then for
--   each document its number (8 bytes, as in the key) and its record (layout: store/records.py).
local prefix, record_lifetime, marker_lifetime = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
at = at + 3
for i = 1, (#ARGV - at) / 2 do
  local key, record = prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local stored, new = redis.call('GET', key), parse(record)
  local state = stored and decide(parse(stored), new) or CREATED
  if state == CREATED or state == REPLACED then
    store(key, record, new.id == '' and marker_lifetime or record_lifetime)
  end
end
return 1
