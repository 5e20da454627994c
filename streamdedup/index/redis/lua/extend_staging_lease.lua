-- Extend the lease on a staging index, or turn the staging index into the index.
--
-- KEYS[1]  guard of the slot: a key that never exists (index/redis/keys.py)
-- KEYS[2]  the lease: name of the process that builds the staging index
-- KEYS[3]  the fingerprint
-- ARGV[1]  name of this process
-- ARGV[2]  length of the lease in milliseconds
-- ARGV[3]  the fingerprint to set when the staging index is complete, else ''
-- Returns 1, or 0 when another process has the lease or none has.
local owner = redis.call('GET', KEYS[2])
if owner ~= ARGV[1] then
  -- A repeated call finds the fingerprint that the first one has set.
  return not owner and ARGV[3] ~= '' and redis.call('GET', KEYS[3]) == ARGV[3] and 1 or 0
end
if ARGV[3] == '' then
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
else
  redis.call('SET', KEYS[3], ARGV[3])
  redis.call('UNLINK', KEYS[2])
end
return 1
