"""The script fits a line without torch: a job without device work needs no turn and must not wait for one."""

import random

random.seed(22)
points = [(k / 10, 3 * k / 10 - 1 + random.gauss(0, 0.1)) for k in range(20)]
slope, offset = 0.0, 0.0
for step in range(15):
    errors = [slope * x + offset - y for x, y in points]
    loss = sum(e * e for e in errors) / len(points)
    slope -= 0.2 * sum(e * x for e, (x, _) in zip(errors, points, strict=True)) / len(points)
    offset -= 0.2 * sum(errors) / len(points)
    print(step, f"{loss:.9g}")
