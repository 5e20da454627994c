-- Name the key in the error for a command on a value of another type, with escapes for bytes that are not printable.
-- Included in front of a script that has failed with WRONGTYPE, in a second call. The key is the first argument of each command.
local server = redis
local redis = setmetatable({
  call = function(...)
    local reply = server.pcall(...)
    if type(reply) == 'table' and reply.err then
      if string.sub(reply.err, 1, 9) == 'WRONGTYPE' then
        local shown = string.gsub((select(2, ...)), '[^\32-\126]', function(char)
          return string.format('\\x%02x', string.byte(char))
        end)
        error({err = 'WRONGTYPE key "' .. shown .. '"'})
      end
      error(reply)
    end
    return reply
  end
}, {__index = server})
