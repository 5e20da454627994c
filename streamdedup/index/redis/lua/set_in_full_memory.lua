#!lua flags=allow-oom
-- Set a key for the deletion of an index. Without the flag SET is refused while the memory is full; the deletion may cure this.
-- KEYS  guard (index/redis/keys.py), the key
-- ARGV  value and options of SET
return redis.call('SET', KEYS[2], unpack(ARGV))
