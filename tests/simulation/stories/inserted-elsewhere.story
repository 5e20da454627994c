# A document whose first attempt was cut short was sent to another partition, too, and the index is rebuilt from there.

run a 9
run b 9
run a 9
run b 9
send 0 y amber birch cedar delta
settle
send 1 x amber birch cedar delta
run b until insert_and_look_up
send 0 x amber birch cedar delta
run a 60
kill b
flush
