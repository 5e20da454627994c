# Kafka deletes the records of a gap while the gap is filled. One of them replaces a document.
partitions 1

send 0 d1 heath amber birch cedar ember jetty birch grove
settle
send 0 d1 cedar
run b 1
prepare p2 3
run prepare 19
switch p2 3
start c
run c 1
run c 12
run c until save_pending_matches
remove 0 4
send 0 d3 heath amber birch cedar ember jetty birch grove

