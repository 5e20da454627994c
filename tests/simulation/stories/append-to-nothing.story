# An append finds no document, and the crash after the next record of the batch has inserted the document.
partitions 1
daemons a

append 0 x knoll
send 0 x amber birch cedar delta
run a until insert_and_look_up
kill a
start a
