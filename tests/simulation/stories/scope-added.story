# With a scope documents have other digests, and a new index does not know the pairs that were published.

send 0 x amber birch cedar delta
send 1 y amber birch cedar delta
settle
prepare two 3
run prepare until complete
run prepare 9
switch two 3
append 0 x knoll
