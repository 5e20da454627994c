# Without the rule "position order" this history ends badly.
partitions 1
daemons a

send 2 d0 birch inlet fjord knoll birch ember birch
send 2 d1 birch inlet fjord knoll birch ember birch
start a
delete 2 d1
run a until replace_entries
