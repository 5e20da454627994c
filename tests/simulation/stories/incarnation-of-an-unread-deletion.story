# An index is lost while a batch is in progress that deletes a document and inserts it again. An alert of another partition
# names the new incarnation; the rebuilt index has the document before its deletion, in its first incarnation.

send 1 d0 birch knoll knoll jetty ember ember inlet heath
run b 17
delete 1 d0
send 1 d0 jetty inlet birch grove heath cedar inlet
open 2 d2 jetty inlet birch grove heath delta inlet
run b until commit
close committed
partitions 4
run b until publish
send 0 d3 birch knoll knoll jetty ember ember inlet heath
flush
run b until take_lease
