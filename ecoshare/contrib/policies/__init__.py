"""Scheduling policies of papers, to compare with, and one that follows from them.

Base classes::

    Tiresias                 of the product
      └─ Gittins
    Queues                   of the product: jobs sink through queues as they are served
      └─ LeastEnergy
    WithOptions
      ├─ Gandiva             co-locates jobs on trial
      ├─ Jigsaw              fills idle ends of iterations
      └─ InRounds            chooses the running jobs in each round
           ├─ Shares         from shares of time
           │    └─ Allox, FinishTime, MaxMin
           └─ Critical, Pal, Shockwave
"""
