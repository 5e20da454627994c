#!lua flags=allow-oom
-- Set a key for the deletion of an index. Without the flag SET is refused while the memory is full; the deletion may cure this.
-- KEYS[1]   guard (index/redis/keys.py)
-- KEYS[2]   the key
-- ARGV[1..] value and options of SET
return redis.call('SET', KEYS[2], unpack(ARGV))
