"""An executable model of the delivery rules: does any interleaving lose or double a pair?

The world of one run, drawn from a seed:

* ``kafka``: partitions, a consumer group with generations, transactions;
* ``index``: the server of the index, in slots; a script changes one slot and nothing else at a time;
* ``store``: a process's way there, with the methods of ``streamdedup.index.contract.BucketStore``;
* ``detector`` and ``daemon``: what a process does with a batch, step by step as in ``streamdedup.detection.detector``
  and ``streamdedup.daemon.loop``. Each effect on a slot or on Kafka is one step, and between two steps of a process
  anything may happen: steps of others, a kill, a rebalance, a process that goes on long after it was replaced, offsets
  set back, a topic that is deleted and created again, an index that is flushed or comes back as of an earlier time, a
  call whose reply is lost or that is stuck and takes effect late;
* ``simulation``: draws documents (upserts, returns to an older text, appends, deletions, redeliveries in the same and
  in another partition), faults and the order of steps;
* ``truth``: computes from the logs and the times of the commits what had to be published, and compares.

``rules`` lists the rules, each with a switch and with what goes wrong without it; ``breaking`` says where that shows.
The model is ahead of the product: a change of the rules begins here.

Not in the model: clusters, caps, more than one profile, what Kafka's client does wrong on its own, and writes that a
replica of the server had not received when it took over, other than all at once ("an index that comes back as of an
earlier time").

Run it with ``make model SEEDS=1000000``, without a rule with ``python -m tests.model 3000 --without fence``, and look
at one run with ``python -m tests.model --show 7``.
"""
