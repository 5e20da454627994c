-- Read the set of a cluster.
-- include: _cluster_sets
-- KEYS[1]  guard (index/redis/keys.py)
-- ARGV[1]  prefix of the keys of sets
-- ARGV[2]  prefix of the keys of entries
-- ARGV[3]  the number that names the cluster (8 bytes)
-- Returns the counts of the cluster and the members of the set, joined (_cluster_sets.lua).
local set = read(ARGV[1] .. ARGV[3])
add_first(set, ARGV[2], ARGV[3])
return counts(set, ARGV[3]) .. set.members
