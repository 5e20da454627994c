-- Find the oldest slice of a list that is not empty (index/expiry.py).
--
-- KEYS[1]       guard of the slot: a key that never exists (index/redis/keys.py)
-- KEYS[2..n+1]  the slices, oldest first
-- Returns {index of the slice among the n, from 0; first entry}, or {} when nothing is listed.
for i = 2, #KEYS do
  local head = redis.call('LINDEX', KEYS[i], 0)
  if head then
    return {i - 2, head}
  end
end
return {}
