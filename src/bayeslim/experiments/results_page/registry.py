"""The one list of what the page shows: record, title, command, table and notes."""

from __future__ import annotations

from bayeslim.experiments import variable_selection as selection
from bayeslim.experiments.comparison.table import table as comparison_table
from bayeslim.experiments.dissertation.table import table as dissertation_table
from bayeslim.experiments.results_page import (
    comparison,
    dissertation,
    k_tied,
    moments,
    samplers,
    shrink,
    sparse_vd,
    variable_selection,
    vdp,
)
from bayeslim.experiments.results_page.entry import Entry, Section
from bayeslim.experiments.samplers.table import table as samplers_table
from bayeslim.experiments.vdp.table import table as vdp_table
from bayeslim.experiments.vision.samplers_table import table as samplers_cifar_table
from bayeslim.experiments.vision.vdp_table import table as vdp_vision_table

__all__ = ["SECTIONS", "Entry", "Section"]


def _example(number: int) -> Entry:
    command = f"bayeslim reproduce variable-selection --example {number} --device cuda"
    name, title = f"variable_selection_{number}", f"Variable selection, example {number}"
    return Entry(name, title, command, selection.table, variable_selection.example, variable_selection.notes)


def _comparison(data: str, title: str) -> Entry:
    command = f"bayeslim reproduce comparison --data {data} --root DATA --device cuda"
    name = f"comparison_{data.replace('-', '_')}"
    return Entry(name, title, command, comparison_table, comparison.images, comparison.images_notes)


SECTIONS: tuple[Section, ...] = (
    Section(
        "k-tied Normal posteriors",
        k_tied.ENTRIES,
        "Scales of low rank instead of one per weight (arXiv 2002.02655).",
    ),
    Section(
        "Sparse variational dropout",
        sparse_vd.ENTRIES,
        "Error against compression, beside Molchanov et al. 2017 and arXiv 1811.00596.",
    ),
    Section(
        "Smaller and faster: LeNets on MNIST",
        (
            Entry(
                "shrink",
                "LeNets pruned, compacted and stored in 16 bits",
                "python benchmarks/shrink.py --root DATA --networks A B",
                shrink.table,
                shrink.lenets,
                shrink.notes,
            ),
        ),
    ),
    Section(
        "Which inputs matter: spike-and-slab restarts",
        (_example(1), _example(2), _example(3)),
        variable_selection.ABOUT,
    ),
    Section(
        "Snapshots and pruning in one shot: LeNet-5 on MNIST",
        (
            Entry(
                "samplers_mnist",
                "CV-Adam and spike-and-slab pruning on MNIST",
                "bayeslim reproduce samplers --device cuda --seeds 0 1 2",
                samplers_table,
                samplers.mnist,
                samplers.mnist_notes,
            ),
        ),
    ),
    Section(
        "VDP++ on MNIST",
        (
            Entry(
                "vdp_mnist",
                "VDP++: the methods",
                "bayeslim reproduce vdp --device cuda",
                vdp_table,
                vdp.mnist,
                vdp.mnist_notes,
            ),
            Entry(
                "vdp_costs_cpu",
                "VDP++: what a step costs on the CPU",
                "bayeslim reproduce vdp --costs --methods det bbb vdp vdp-ard",
                vdp_table,
                vdp.costs,
                vdp.costs_notes,
            ),
            Entry(
                "vdp_costs_cuda",
                "VDP++: what a step costs on the GPU",
                "bayeslim reproduce vdp --costs --methods det vdp --device cuda",
                vdp_table,
                vdp.costs,
                vdp.costs_notes,
            ),
            Entry(
                "vdp_priors_mnist",
                "VDP++: other priors and expectations",
                None,
                vdp.priors_table,
                vdp.priors,
                vdp.priors_notes,
            ),
        ),
    ),
    Section(
        "Deep networks of images",
        (
            Entry(
                "samplers_cifar",
                "Snapshots and pruning: ResNet-18 on CIFAR-10",
                "bayeslim reproduce samplers-cifar --methods cvadam dfp-90 sgd --epochs 15 --batch-size 128 --lr 2 "
                "--sgd-lr 0.1 --root DATA --device cuda",
                samplers_cifar_table,
                samplers.cifar,
                samplers.cifar_notes,
            ),
            Entry(
                "vdp_cifar",
                "VDP++: ResNet-18 on CIFAR-10",
                "bayeslim reproduce vdp-cifar --seeds 0 --epochs 8 --batch-size 256 --ramp 3 "
                "--samples 10 --root DATA --device cuda",
                vdp_vision_table,
                vdp.cifar,
                vdp.cifar_notes,
            ),
            Entry(
                "vdp_vit",
                "VDP++: a small vision transformer on MNIST",
                "bayeslim reproduce vdp-vit --seeds 0 1 2 --root DATA --device cuda",
                vdp_vision_table,
                vdp.vit,
                vdp.vit_notes,
            ),
        ),
    ),
    Section(
        "The dissertation: where its sparsities come from",
        (
            Entry(
                "dissertation_small",
                "The dissertation: Two Moons and a curve",
                "bayeslim reproduce dissertation --parts moons regression",
                dissertation_table,
                dissertation.small,
                dissertation.small_notes,
            ),
            Entry(
                "dissertation_mnist",
                "The dissertation: MNIST and Fashion-MNIST",
                "bayeslim reproduce dissertation --parts mnist fashion-mnist --root DATA --device cuda",
                dissertation_table,
                dissertation.mnist,
                dissertation.mnist_notes,
            ),
            Entry(
                "dissertation_imdb",
                "The dissertation: a Transformer on IMDB",
                "bayeslim reproduce dissertation --parts imdb --root DATA --device cuda",
                dissertation_table,
                dissertation.imdb,
                dissertation.imdb_notes,
            ),
        ),
        dissertation.ABOUT,
    ),
    Section(
        "Which method: small regressions",
        (
            Entry(
                "comparison_uci",
                "All methods on small regressions",
                "bayeslim reproduce comparison --data uci --splits 0 1 2 3 4 --root DATA",
                comparison_table,
                comparison.uci,
                comparison.uci_notes,
            ),
        ),
    ),
    Section(
        "Which method: images",
        (
            _comparison("mnist", "All methods on MNIST"),
            _comparison("fashion-mnist", "All methods on Fashion-MNIST"),
        ),
    ),
    Section("Moments against sampling", about=moments.TEXT),
)
"""What the page shows, in this order."""
