-- Take documents out of their buckets of one slot.
--
-- After the fences: ARGV  prefix of the shelves, key of the layers, band keys (4 bytes for each of n documents, joined), then n
--   document numbers (8 bytes).
local prefix, layers_key, band_keys = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
at = at + 3
local now = present()
local layers = read_layers(layers_key, prefix, now)
local left = 0
for i = 1, #ARGV - at do
  local band_key = sub(band_keys, 4 * i - 3, 4 * i)
  for _, layer in ipairs(layers) do
    local shelf = shelf_of(layer, place_on(layer, number_of(band_key)))
    local count = redis.call('ZREM', shelf, of_any_era(band_key, ARGV[at + i]))
    layer.count = layer.count - count
    left = left + count
  end
end
if left > 0 then
  write_layers(layers_key, layers, now)
end
return 1
