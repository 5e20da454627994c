-- Take over a partition in one slot; return the last attempt announced for it there ('' when there was none).
--
-- KEYS[1]  a key that is never there, in the slot: see index/redis/keys.py
-- KEYS[2]  the fence
-- ARGV[1]  our generation and store, '<generation>:<store>'. A static member that comes back finds the generation
--          unchanged, so the generation alone would not tell it from the process before.
-- ARGV[2]  time to live in milliseconds: a deleted consumer group counts from one again
-- ARGV[3]  key of the partition's announcement
-- ARGV[4]  '0' when nothing is known of the committed offset's announcement: where no fence stands either, the group was made
--   anew, and what was announced before counts no more
local stored = redis.call('GET', KEYS[2])
local function generation(fence)
  return tonumber(string.match(fence, '^%d+'))
end
if stored and generation(stored) > generation(ARGV[1]) then
  return redis.error_reply('FENCED ' .. stored .. ' ' .. ARGV[1])
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
if ARGV[4] == '0' and not stored then
  redis.call('UNLINK', ARGV[3])
end
return redis.call('GET', ARGV[3]) or ''
