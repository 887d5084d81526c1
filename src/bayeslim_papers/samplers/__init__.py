"""CV-Adam, pruning while training, and variable selection (arXiv 2210.12957).

`mnist` compares methods on LeNet-5, `images` has deep networks, `variable_selection` the simulated problems.
"""
