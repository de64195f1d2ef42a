"""Answer over HTTP whether the writers of reviews were pleased: a Starlette application with `ecoshare.serve`.

Alone, and a question to it:

    python examples/services/serve.py
    curl --data '"the soup was not very good"' http://127.0.0.1:8710/read/
"""

import argparse

import torch
import uvicorn
from reviews import LABELS, base_model, encoded
from starlette.applications import Starlette
from starlette.routing import Mount

import ecoshare


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Answer over HTTP whether the writers of reviews were pleased.")
    parser.add_argument("--port", type=int, default=8710)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.set_num_threads(1)  # more gain nothing for so small a model
    model = base_model().to(args.device).eval()

    def handler(texts: list[str]) -> list[str]:  # all reviews of a batch at once
        with torch.inference_mode():
            logits = model(torch.tensor([encoded(text) for text in texts], device=args.device))
        return [LABELS[number] for number in logits.argmax(dim=1).tolist()]

    handler(["the soup was good"])  # the first call loads code: no request shall wait for that
    server = ecoshare.serve(handler, batch=(1, 2, 4, 8), p99="50 ms")
    app = Starlette(routes=[Mount("/read", app=server.app())])
    uvicorn.run(app, host="127.0.0.1", port=args.port, log_level="warning")


if __name__ == "__main__":
    main()
