-- Layout "packed": read buckets of one slot without inserting. Arguments and reply are those of look_up_sets, but members are 8 bytes
-- each, joined.
-- include: _no_fence _linear_hashing _pages
local band_keys, result = ARGV[used + 3], {}
for i = 1, #band_keys / 4 do
  local members, hash, field = '', bucket_at(i, band_keys)
  for _, generation in ipairs(generations) do
    members = members .. read(generation, hash, field)
  end
  if members ~= '' then
    result[#result + 1], result[#result + 2] = i, members
  end
end
return result
