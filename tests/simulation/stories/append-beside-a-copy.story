# An append is read again when the index has a later version, in one batch with a copy of this version.
partitions 2
daemons a

send 1 x amber birch cedar delta
send 0 y heath inlet jetty knoll
settle
append 1 x grove
send 1 x heath inlet jetty knoll
run a until announce
kill a
send 0 z heath inlet jetty knoll
