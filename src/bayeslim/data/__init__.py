"""Data sets: real ones read from local files or their official addresses, and synthetic ones."""

from bayeslim.data.archive import extract_tar
from bayeslim.data.cache import data_folders, locate, verify
from bayeslim.data.fetching import DownloadError, download
from bayeslim.data.idx import read_idx
from bayeslim.data.images import (
    ImageData,
    cifar10,
    cifar100,
    fashion_mnist,
    images_from_cifar,
    images_from_idx,
    mnist,
)
from bayeslim.data.named import NAMED, load_problem
from bayeslim.data.preprocessing import Preprocessing
from bayeslim.data.problems import Problem, Splits
from bayeslim.data.sparse_examples import SparseSamples, sparse_regression
from bayeslim.data.synthetic import Samples, blundell_curve, dissertation_curve, moons
from bayeslim.data.tables import Table, read_table, table_chunks
from bayeslim.data.tabular import (
    UCI_NAMES,
    RegressionData,
    Standardisation,
    regression_npz,
    standardise,
    uci,
)
from bayeslim.data.text import TextData, imdb

__all__ = [
    "NAMED",
    "UCI_NAMES",
    "DownloadError",
    "ImageData",
    "Preprocessing",
    "Problem",
    "RegressionData",
    "Samples",
    "SparseSamples",
    "Splits",
    "Standardisation",
    "Table",
    "TextData",
    "blundell_curve",
    "cifar10",
    "cifar100",
    "data_folders",
    "dissertation_curve",
    "download",
    "extract_tar",
    "fashion_mnist",
    "images_from_cifar",
    "images_from_idx",
    "imdb",
    "load_problem",
    "locate",
    "mnist",
    "moons",
    "read_idx",
    "read_table",
    "regression_npz",
    "sparse_regression",
    "standardise",
    "table_chunks",
    "uci",
    "verify",
]
