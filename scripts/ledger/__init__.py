"""The ledger of one real start: facts from many sources, one clock, six phases and what no phase explains.

    bundle    everything that was read about one start, raw, as it is saved in a folder
    *_facts   one small reader per source: raw objects in, facts out
    merge     facts → the ledger; phases and `unaccounted` always sum to the wall clock
    proofs    which lever was on, from the running node and pod

Everything that the recorder needs imports the standard library alone: it runs in a plain Python image.
"""
