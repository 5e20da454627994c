-- Store index entries of one slot where there is none yet.
--
-- After the fences: ARGV  prefix of the entries' keys, lifetime in milliseconds ('0' for ever), document numbers (8 bytes for each of n
--   documents, joined), lengths of the entries (4 bytes each, joined), the entries (layout: index/entries.py), joined.
-- Returns {states, i, entry, i, entry, ...}: n states of one byte each, joined, then for each document that is neither CREATED nor
--   SUPERSEDED its index among the n and the entry that is stored. An entry to be REPLACED is still stored.
local prefix, lifetime = ARGV[at + 1], ARGV[at + 2]
local states, result = {}, {''}
for i, number, entry in entries(ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]) do
  local key, stored = prefix .. number, nil
  if lifetime == '0' then
    stored = redis.call('SET', key, entry, 'NX', 'GET')
  else
    stored = redis.call('SET', key, entry, 'NX', 'GET', 'PX', lifetime)
  end
  local state = stored and decide(parse(stored), parse(entry)) or CREATED
  states[i] = string.char(state)
  if state ~= CREATED and state ~= SUPERSEDED then
    result[#result + 1] = i
    result[#result + 1] = stored
  end
end
result[1] = table.concat(states)
return result
