-- Claim pairs of one slot: a pair belongs to the position that asks first, and every request extends the claim (rule 5).
-- include: _fence _linear_hashing _claims
-- ARGV[used+1]    prefix of the pages
-- ARGV[used+2]    key of their catalogue
-- ARGV[used+3]    time to live of claims in milliseconds
-- ARGV[used+4]    number n of claims
-- ARGV[used+5..]  for each of the n claims: the last 12 bytes of the pair key, token of the position (8 bytes); then for each pair
--                 whose claim is only extended: the last 12 bytes of the pair key
-- The token PUBLISHED, of pairs with a committed alert, takes a pair from any position (rule 8).
-- Returns for each of the n claims 1 when the pair belongs to the position, else 0.
local prefix, catalogue = ARGV[used + 1], ARGV[used + 2]
local lifetime, claims_count = tonumber(ARGV[used + 3]), tonumber(ARGV[used + 4])
used = used + 4
local now = present()
local generations = read_generations(catalogue, prefix, now)
local newest = open_generation(generations, prefix, lifetime, now)
local result = {}
local PUBLISHED = string.rep('\0', 8)

-- Make or extend a claim: move it to the newest generation.
local function keep(field, owner, generation)
  if generation ~= newest then
    if generation then
      remove(generation, field)
    end
    insert(newest, field, owner)
  end
end

for i = 1, claims_count do
  local field, token = ARGV[used + 2 * i - 1], ARGV[used + 2 * i]
  local owner, generation = find(generations, field)
  if owner and token == PUBLISHED and owner ~= token then
    remove(generation, field)
    owner, generation = nil, nil
  end
  result[i] = (not owner or owner == token) and 1 or 0
  keep(field, owner or token, generation)
end
for i = used + 2 * claims_count + 1, #ARGV do
  local owner, generation = find(generations, ARGV[i])
  if owner then
    keep(ARGV[i], owner, generation)
  end
end
expire_pages(newest, now)
write_generations(catalogue, generations, now)
return result
