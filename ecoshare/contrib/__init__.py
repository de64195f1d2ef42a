"""Parts that few need, each on its own: found by entry points, imported by nothing in the product.

The user's scripts import `spb`.
Most of their tests are in `tests/contrib`, and run at night.
"""
