-- Turn the staging index into the index, and give up the lease.
-- KEYS[1]  guard (index/redis/keys.py)
-- KEYS[2]  the lease: name of the process that builds the staging index
-- KEYS[3]  the fingerprint
-- ARGV[1]  name of this process
-- ARGV[2]  the fingerprint to set
-- Returns 1, or 0 when another process has the lease or none has. A repeated call finds its fingerprint, and returns 1.
local owner = redis.call('GET', KEYS[2])
if not owner and redis.call('GET', KEYS[3]) == ARGV[2] then
  return 1
end
if owner ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[3], ARGV[2])
redis.call('UNLINK', KEYS[2])
return 1
