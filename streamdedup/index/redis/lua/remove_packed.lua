-- Layout "packed": remove documents from their buckets of one slot.
-- include: _fence _linear_hashing _pages
-- ARGV[used+1..2]  see _pages.lua
-- ARGV[used+3]     band keys (4 bytes for each of n documents, joined)
-- ARGV[used+4]     n document numbers (8 bytes each, joined)
local band_keys, numbers = ARGV[used + 3], ARGV[used + 4]
for i = 1, #numbers / 8 do
  local hash, field = bucket_at(i, band_keys)
  for _, generation in ipairs(generations) do
    remove(generation, hash, field, sub(numbers, 8 * i - 7, 8 * i))
  end
end
save_generations()
return 1
