# The first record behind a fence is an append to no document, and becomes a dead letter.

append 0 x knoll
