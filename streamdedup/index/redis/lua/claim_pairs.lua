-- Claim pairs of one slot: a pair belongs to the position that asks first. Every question extends the claim.
--
-- After the fences: ARGV  prefix of the pages, key of their catalogue, lifetime of claims in milliseconds ('0' for ever), how many
--   pairs are asked for, then for each of these and for each pair whose claim is only extended the last 12 bytes of its key and the
--   token of the position (8 bytes).
-- Returns for each pair that is asked for 1 when it belongs to that position, else 0.
local prefix, catalogue, lifetime, asked = ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
at = at + 4
local now = present()
local generations = read_generations(catalogue, prefix, now)
local newest = generation_to_enter(generations, prefix, lifetime, now)
local result = {}
for i = 1, (#ARGV - at) / 2 do
  local field, token = ARGV[at + 2 * i - 1], ARGV[at + 2 * i]
  local stored, generation = find(generations, field)
  if i <= asked then
    result[i] = (not stored or sub(stored, 1, 8) == token) and 1 or 0
  end
  if stored or i <= asked then
    local value = (stored and sub(stored, 1, 8) or token) .. sub(token, 1, 4)
    if generation and generation ~= newest then
      remove(generation, field)
    end
    if generation ~= newest or value ~= stored then
      enter(newest, field, value)
    end
  end
end
expire_pages(newest, now)
write_generations(catalogue, generations, now)
return result
