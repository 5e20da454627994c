-- Store document records and markers of one slot, each where nothing stands or an earlier position.
--
-- After the fences: ARGV  prefix of record keys, lifetime in milliseconds ('0' for ever), then for each document
--   its number (8 bytes, as in the key) and its record (layout: store/records.py).
local prefix, lifetime = ARGV[at + 1], ARGV[at + 2]
at = at + 2
for i = 1, (#ARGV - at) / 2 do
  local key, record = prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local stored = redis.call('GET', key)
  local state = stored and decide(parse(stored), parse(record)) or CREATED
  if state == CREATED or state == REPLACED then
    store(key, record, lifetime)
  end
end
return 1
