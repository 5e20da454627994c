-- Put in front of a script that has failed: the key of a command that meets a value of another type becomes part of the error,
-- with escapes for what is not printable.
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
