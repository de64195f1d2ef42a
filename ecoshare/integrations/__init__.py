"""Integrations with tools for hyper-parameter search: one package and one optional extra for each tool."""
