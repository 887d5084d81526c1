"""What bayeslim is compared with: ensembles, MC dropout, Laplace, NUTS and sparse momentum.

Two baselines need nothing of their own. The MAP estimate is `bl.fit` of a plain network with weight decay
`1 / (prior_std^2 N)`, and SGD with momentum is `bl.fit(..., optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9))`.
"""

from bayeslim.baselines.deep_ensemble import deep_ensemble as deep_ensemble
from bayeslim.baselines.laplace import laplace as laplace
from bayeslim.baselines.mc_dropout import MCDropout as MCDropout
from bayeslim.baselines.mc_dropout import keep_dropout_ as keep_dropout_
from bayeslim.baselines.nuts import nuts as nuts
from bayeslim.baselines.sparse_momentum import SparseMomentum as SparseMomentum

__all__ = ["MCDropout", "SparseMomentum", "deep_ensemble", "keep_dropout_", "laplace", "nuts"]
