-- Drop claims of one slot, each where a position was the last to ask for it.
--
-- After the fences: ARGV  prefix of the pages, key of their catalogue, then for each pair the last 12 bytes of its key and the token
--   of the position (8 bytes).
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
