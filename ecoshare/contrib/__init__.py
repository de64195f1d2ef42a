"""Parts that few need, each in a folder of its own: found by entry points, imported by nothing in the product.

Most of their tests are in `tests/contrib`, and run at night.
"""
