"""ecoshare under tools that search hyper-parameters by themselves: one package for each, each an optional extra."""
