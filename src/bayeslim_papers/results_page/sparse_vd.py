"""Sparse VD on the page: records and commands."""

from __future__ import annotations

from bayeslim_papers.results_page import sparse_vd_notes as notes
from bayeslim_papers.results_page.entry import Entry, Notes
from bayeslim_papers.sparse_vd.table import table

__all__ = ["ENTRIES"]

_LENETS = "--seeds 10 0 1 2 3 4 --finishes pruned tuned harder hardest"
_SHIFTED = "shifted shifted-distilled harder-shifted harder-shifted-distilled"
_P2 = "--finishes pruned magnitude tuned --compile"


def _entry(
    network: str, title: str, options: str, *texts: Notes, kind: str = "", device: str = " --device cuda"
) -> Entry:
    command = f"bayeslim reproduce sparse-vd --network {network} {options}{device}"
    return Entry(f"sparse_vd_{kind}{network.replace('-', '_')}", title, command, table, *texts)


ENTRIES: tuple[Entry, ...] = (
    _entry(
        "lenet-300-100",
        "ARD on shifted and turned images: LeNet-300-100",
        "--recipes ard-3-varied ard-4-varied --together 10 --compile --finishes pruned tuned 101 101-varied",
        notes.lenet,
        notes.varied_notes,
        kind="varied_",
    ),
    _entry(
        "lenet-5",
        "ARD on shifted and turned images: LeNet-5-Caffe",
        "--recipes ard-3-varied --together 5 --compile --finishes pruned 281 281-varied",
        notes.lenet,
        notes.varied_notes,
        kind="varied_",
    ),
    _entry(
        "lenet-300-100",
        "Sparse VD: LeNet-300-100 on MNIST",
        f"--recipes ard-4 ard-5 {_LENETS}",
        notes.lenet,
        notes.lenet_notes,
    ),
    _entry(
        "lenet-300-100",
        "Sparse VD: LeNet-300-100, tuned on shifted images and otherwise",
        "--recipes ard-4 ard-5 --seeds 10 0 1 2 3 4 --compile --finishes pruned tuned harder longer relaxed "
        + _SHIFTED,
        notes.lenet,
        notes.shifted_notes,
        kind="shifted_",
    ),
    _entry(
        "lenet-5",
        "Sparse VD: LeNet-5-Caffe on MNIST",
        f"--recipes ard-4 ard-6-spared {_LENETS}",
        notes.lenet,
        notes.lenet_notes,
    ),
    _entry(
        "lenet-5",
        "Sparse VD: LeNet-5-Caffe, tuned on shifted images",
        "--recipes ard-4 --seeds 10 0 1 2 3 4 --together 1 --compile --finishes pruned tuned harder " + _SHIFTED,
        notes.lenet,
        notes.shifted_notes,
        kind="shifted_",
    ),
    _entry(
        "lenet-300-100",
        "ARD with clipping: LeNet-300-100, tuned on shifted images",
        "--recipes ard-3-clip ard-4-clip --seeds 10 0 1 2 3 4 --together 12 --compile --finishes pruned tuned "
        "firm-shifted shifted harder-shifted",
        notes.lenet,
        notes.ard_clip_notes,
        kind="ard_clip_",
    ),
    _entry(
        "lenet-5",
        "ARD with clipping: LeNet-5-Caffe, tuned on shifted images",
        "--recipes ard-3-clip --seeds 10 0 1 2 3 4 --together 6 --compile --finishes pruned tuned firm-shifted "
        "harder-shifted",
        notes.lenet,
        notes.ard_clip_notes,
        kind="ard_clip_",
    ),
    _entry(
        "lenet-300-100",
        "ARD and its Gamma hyperprior: LeNet-300-100 on MNIST",
        f"--recipes molchanov p2-svd p2-ard gamma-0.505 gamma-0.51 gamma-0.52 gamma-0.55 gamma-0.6 {_P2}",
        notes.lenet,
        notes.p2_large_notes,
        kind="p2_",
    ),
    _entry(
        "lenet-300-100",
        "Sparse VD with the clipping of the official code: LeNet-300-100 on MNIST",
        f"--recipes molchanov-clip --together 1 {_P2}",
        notes.lenet,
        notes.clip_notes,
        kind="clip_",
        device="",
    ),
    _entry(
        "lenet-5",
        "Sparse VD with the clipping of the official code: LeNet-5-Caffe on MNIST",
        f"--recipes molchanov-clip --together 5 {_P2}",
        notes.lenet,
        notes.clip_small_notes,
        kind="clip_",
    ),
    _entry(
        "lenet-5",
        "ARD: LeNet-5-Caffe on MNIST",
        f"--recipes molchanov p2-svd p2-ard --together 4 {_P2}",
        notes.lenet,
        notes.p2_small_notes,
        kind="p2_",
    ),
    _entry(
        "vgg",
        "ARD and its Gamma hyperprior: VGG on CIFAR-10",
        "--recipes p2-svd p2-ard gamma-0.505 gamma-0.51 gamma-0.52 --seeds 1 --epochs 25",
        notes.vgg,
        notes.vgg_notes,
    ),
)
