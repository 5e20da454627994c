-- Extend the lease on a staging index.
-- KEYS[1]  guard (index/redis/keys.py)
-- KEYS[2]  the lease: name of the process that builds the staging index
-- ARGV[1]  name of this process
-- ARGV[2]  length of the lease in milliseconds
-- Returns 1, or 0 when another process has the lease or none has.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
