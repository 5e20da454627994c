-- Prolong the hold on an index that is being built, or make it the index.
--
-- KEYS[1]  a key that is never there, in the slot: see index/redis/keys.py
-- KEYS[2]  the draft: the name of whoever builds it
-- KEYS[3]  the fingerprint
-- ARGV[1]  our name
-- ARGV[2]  for how long the hold is to last, in milliseconds
-- ARGV[3]  the fingerprint to set when the index is complete, else ''
-- Returns 1, or 0 when the draft is not ours (any more).
local held = redis.call('GET', KEYS[2])
if held ~= ARGV[1] then
  -- A call that is repeated finds what the first has set.
  return not held and ARGV[3] ~= '' and redis.call('GET', KEYS[3]) == ARGV[3] and 1 or 0
end
if ARGV[3] == '' then
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
else
  redis.call('SET', KEYS[3], ARGV[3])
  redis.call('UNLINK', KEYS[2])
end
return 1
