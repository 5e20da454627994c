#!lua flags=allow-oom
-- Delete keys of an index that is to be rebuilt or dropped, while this process has the lease on the staging index.
-- KEYS[1]    guard (index/redis/keys.py)
-- KEYS[2]    the lease: name of the process that builds the staging index
-- KEYS[3]    the key that exists while the index is being deleted
-- KEYS[4..]  keys to delete, of any slot; on a cluster only the fingerprint, which is in the slot of the lease
-- ARGV[1]    name of this process
-- ARGV[2]    1 when the deletion is complete, else 0
-- Returns the number of deleted keys, or -1 when another process has the lease or none has.
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return -1
end
if ARGV[2] == '1' then
  redis.call('UNLINK', KEYS[3])
else
  redis.call('SET', KEYS[3], '1')
end
local deleted = 0
for i = 4, #KEYS do
  deleted = deleted + redis.call('UNLINK', KEYS[i])
end
return deleted
