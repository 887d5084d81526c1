"""The k-tied Normal posterior (arXiv 2002.02655) on four networks.

    bayeslim reproduce k-tied --part mnist --device cuda --out results/k_tied_mnist.json

Every part trains a network with mean-field and with 1-, 2- and 3-tied posteriors under the same budget, scores -ELBO,
NLL and accuracy by 100 weight samples, and then cuts the scales of the mean-field network to rank 1, 2 and 3:

- mnist: a perceptron, figure 6 and table 2; also gradient noise and convergence without annealing;
- cifar100, cifar10: a convolutional network, figure 6 and table 2 (the paper has CIFAR-100 alone);
- imdb: an LSTM on reviews, figure 6 and table 2;
- resnet: a residual network on CIFAR-10, mean-field alone, tables 3 and 5.

Results are written after every posterior and seed, and a run with the same --out goes on where it stopped. --ranks and
--seeds split a part over several processes, whose files --merge joins.
"""

from bayeslim_papers.k_tied.cifar import Cifar10, Cifar100
from bayeslim_papers.k_tied.command import PARTS, main
from bayeslim_papers.k_tied.imdb import Imdb
from bayeslim_papers.k_tied.mnist import Mnist
from bayeslim_papers.k_tied.paper import PAPER
from bayeslim_papers.k_tied.part import Part, Splits
from bayeslim_papers.k_tied.resnet import Resnet
from bayeslim_papers.k_tied.table import table

__all__ = [
    "PAPER",
    "PARTS",
    "Cifar10",
    "Cifar100",
    "Imdb",
    "Mnist",
    "Part",
    "Resnet",
    "Splits",
    "main",
    "table",
]
