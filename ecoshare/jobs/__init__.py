"""The job file, in which a user describes the jobs that share a GPU.

::

    jobs.yaml --source--> text --document--> nodes with places --schema--> jobs
                            |                  |                     |
                            |                  +------ explain <-----+   mistakes, each with line and column
                            +--mask--> the copy in the run folder, without the values of `env:`

`load` takes all these steps. `template` writes a file to start from. `quantities` reads and writes `2 min`
and `1.5 GiB`.
"""
