-- Store index entries of documents of one slot that have none yet (rules 1 and 3 of docs/delivery.md).
-- include: _fence _entries
-- ARGV[used+1]  prefix of the keys of entries; the document number (8 bytes) follows
-- ARGV[used+2]  time to live in milliseconds
-- ARGV[used+3]  numbers of n documents (8 bytes each, joined)
-- ARGV[used+4]  lengths of the n entries (4 bytes each, joined)
-- ARGV[used+5]  the n entries, joined
-- Returns {states, i, entry, i, entry, ...}: n states of one byte each, joined; then for each document that is neither CREATED nor
--   SUPERSEDED its row among the n (from 1 on) and the stored entry. An entry to be REPLACED is still stored.
local prefix, lifetime = ARGV[used + 1], ARGV[used + 2]
local call, created, states, result = redis.call, string.char(CREATED), {}, {''}
for i, number, entry in entries(ARGV[used + 3], ARGV[used + 4], ARGV[used + 5]) do
  local stored = call('SET', prefix .. number, entry, 'NX', 'GET', 'PX', lifetime)
  states[i] = created
  if stored then
    local state = decide(parse(stored), parse(entry))
    states[i] = string.char(state)
    if state ~= SUPERSEDED then
      result[#result + 1], result[#result + 2] = i, stored
    end
  end
end
result[1] = table.concat(states)
return result
