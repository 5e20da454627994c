-- Store document records of one slot where none stands yet.
--
-- After the fences: ARGV  prefix of record keys, lifetime in milliseconds ('0' for ever), then for each document
--   its number (8 bytes, as in the key) and its record (layout: store/records.py).
-- Returns {state, state, ..., i, record, i, record, ...}: n states, then for each document that is neither CREATED nor
--   SUPERSEDED its index among the n and the record that stands there. What is REPLACED still stands.
local prefix, lifetime = ARGV[at + 1], ARGV[at + 2]
at = at + 2
local count = (#ARGV - at) / 2
local result = {}
local previous = count
for i = 1, count do
  local key, record = prefix .. ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local stored
  if lifetime == '0' then
    stored = redis.call('SET', key, record, 'NX', 'GET')
  else
    stored = redis.call('SET', key, record, 'NX', 'GET', 'PX', lifetime)
  end
  if not stored then
    result[i] = CREATED
  else
    local state = decide(parse(stored), parse(record))
    result[i] = state
    if state ~= SUPERSEDED then
      result[previous + 1] = i
      result[previous + 2] = stored
      previous = previous + 2
    end
  end
end
return result
