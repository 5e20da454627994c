-- Evict claims of one slot, each if the position was the last to ask for it (rule 12 of index/contract.py).
-- include: _fence _claims
--
-- ARGV[at+1]    prefix of the pages
-- ARGV[at+2]    key of their catalogue
-- ARGV[at+3..]  for each pair: the last 12 bytes of the pair key, token of the position (8 bytes)
local prefix, catalogue = ARGV[at + 1], ARGV[at + 2]
at = at + 2
local now = present()
local generations = read_generations(catalogue, prefix, now)
for i = 1, (#ARGV - at) / 2 do
  local field, token = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local stored, generation = find(generations, field)
  if stored and sub(stored, 9) == sub(token, 1, 4) then
    remove(generation, field)
  end
end
if #generations > 0 then
  write_generations(catalogue, generations, now)
end
return 1
