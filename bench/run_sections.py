# SPDX-License-Identifier: BSD-3-Clause
"""Defines the measurements of bench/run by section, in full and for two minutes."""

SMALL = "8,64,512,4K,16K"
LARGE = "32K,64K,128K,256K,1M,4M,16M,64M"
# section: (rounds, seconds a round with three hosts, [(ranks, what, sizes, more)], sentence)
FULL = {
    "bcast": (9, 17, [(2, "bcast", LARGE, ["ms=60"])], "broadcast, until the data has been used"),
    "gather": (9, 24, [(2, "gather", LARGE, ["ms=60"])], "gather, until the data has been used"),
    "huge": (5, 10, [(2, "bcast,gather", "4M,16M,64M", ["ms=60", "pages=huge"])],
             "as bcast and gather, in buffers that ask for huge pages, as numpy's do"),
    "whole": (5, 10, [(2, "bcast,gather", "256K,1M,16M", ["ms=60", "use=all"])],
              "as bcast and gather, but every byte received is read"),
    "small": (15, 10, [(2, "small-bcast,small-gather", SMALL, ["ms=40"]),
                       (2, "allreduce,sendrecv,barrier", "8,16K,1M", ["ms=40"])],
              "small messages and calls that Sluice does not take"),
    "ranks": (3, 120, [(4, "bcast,gather", "1M,4M,16M", ["ms=100", "min=2"]),
                       (8, "bcast,gather", "1M,4M,16M", ["ms=100", "min=2"])],
              "more ranks than cores"),
    "first": (7, 12, [(2, "first-bcast,first-gather", "64K,1M,16M", ["ms=150"])],
              "fresh buffers: first use; ten uses and the free"),
    "free": (7, 6, [(2, "malloc", "64,4K,256K,4M", ["ms=40"])],
             "one free and one malloc, both ranks at once"),
    "startup": (15, 5, [(2, "hello", "", []), (2, "memory", "", [])],
                "start and end of a program without large messages"),
}
QUICK = {
    "bcast": (3, 9, [(2, "bcast", "32K,64K,256K,1M,16M", ["ms=40"])], None),
    "gather": (3, 10, [(2, "gather", "32K,64K,1M,16M", ["ms=40"])], None),
    "huge": (2, 5, [(2, "bcast,gather", "16M", ["ms=40", "pages=huge"])], None),
    "whole": (2, 4, [(2, "bcast,gather", "1M", ["ms=40", "use=all"])], None),
    "small": (3, 4, [(2, "small-bcast,allreduce,sendrecv,barrier", "8,16K", ["ms=30"])], None),
    "ranks": (1, 8, [(4, "bcast,gather", "1M", ["ms=40", "min=2"])], None),
    "first": (2, 5, [(2, "first-bcast,first-gather", "1M", ["ms=60"])], None),
    "free": (1, 4, [(2, "malloc", "4K,4M", ["ms=30"])], None),
    "startup": (3, 4, [(2, "hello", "", []), (2, "memory", "", [])], None),
}
LIMITS = {"bcast": "limit-bcast", "gather": "limit-gather", "huge": "limit-bcast,limit-gather",
          "whole": "limit-bcast,limit-gather"}
