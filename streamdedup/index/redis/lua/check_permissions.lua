#!lua flags=no-writes
-- Find the commands that the user may not call, without writing: the server checks permissions before it refuses a command that
-- writes for the flag above.
-- KEYS[1]  guard (index/redis/keys.py)
-- ARGV     commands, their words separated by blanks; '@' is replaced by KEYS[1]
-- Returns one refusal of the server for each command that lacks a permission.
local refusals = {}
for _, text in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(text, '%S+') do
    table.insert(words, word == '@' and KEYS[1] or word)
  end
  local reply = redis.pcall(unpack(words))
  local refusal = type(reply) == 'table' and reply.err
  -- The texts of older and newer servers; any other error means that the command is permitted.
  if refusal and (string.find(refusal, 'permission') or string.find(refusal, 'user executing the script', 1, true)) then
    table.insert(refusals, words[1] .. ': ' .. refusal)
  end
end
return refusals
