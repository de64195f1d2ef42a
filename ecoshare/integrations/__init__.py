"""ecoshare under tools that search hyper-parameters by themselves: one module for each, each an optional extra."""
