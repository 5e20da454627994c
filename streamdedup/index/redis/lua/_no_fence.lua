-- In place of _fence.lua in scripts that only read: their own arguments begin at ARGV[used+1] = ARGV[1].
local used = 0
