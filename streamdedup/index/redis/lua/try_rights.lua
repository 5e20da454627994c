#!lua flags=no-writes
-- Which commands the user may not call. The server checks rights before it refuses a command that writes for the flag above,
-- so nothing is written, whatever the user may do.
--
-- KEYS[1]: a key that is never there. ARGV: commands, their words separated by blanks; '@' stands for the key.
-- Returns the server's refusals, one for each command that lacks a right.
local refusals = {}
for _, text in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(text, '%S+') do
    table.insert(words, word == '@' and KEYS[1] or word)
  end
  local reply = redis.pcall(unpack(words))
  local said = type(reply) == 'table' and reply.err
  if said and (string.find(said, 'permission') or string.find(said, 'user executing the script', 1, true)) then
    table.insert(refusals, words[1] .. ': ' .. said)
  end
end
return refusals
