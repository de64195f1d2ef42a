"""The part of a service that runs in its own process: `ecoshare.serve`.

::

    client ──HTTP──► asgi ──┐                                  ┌── handler(requests) ──► answers
    program ──submit────────┼──► request_queue ──► batch_worker┤
    request_source ─────────┘      (bounded,          │  ▲     └── request_record ──► requests.jsonl
                                    due first)        ▼  │                              │
                                                     batching                           ▼
                                              (how many at once?)              request_intervals, read by
                                                                                   the controller

`batch_server` joins the parts. The package stands alone outside a run. Inside a lane, the runner sets hooks in
`ecoshare`: `_service`, `_answering`, `_most_batch` and `_requests_path`. Nothing here imports torch.

A service that shares its process has one thread: `inline_service` makes the requests and answers them there.

A server with a scheduler of its own has `front`, `relay` and `sleeping_server` before it instead.
"""
