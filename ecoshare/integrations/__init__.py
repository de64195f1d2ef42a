"""Libraries that people search hyper-parameters with, whose trials run in lanes: each is an extra of its own."""
