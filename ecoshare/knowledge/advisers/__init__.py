"""Advisers: slow answers to questions of the core, about settings, interference and plans. Both drivers use them."""
