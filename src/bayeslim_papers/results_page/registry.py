"""The sections of the page, in their order."""

from __future__ import annotations

from bayeslim_papers.results_page import (
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
from bayeslim_papers.results_page.entry import Entry, Section

__all__ = ["SECTIONS", "Entry", "Section"]

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
    Section("Smaller and faster: LeNets on MNIST", shrink.ENTRIES),
    Section("Which inputs matter: spike-and-slab restarts", variable_selection.ENTRIES, variable_selection.ABOUT),
    Section("Snapshots and pruning in one shot: LeNet-5 on MNIST", samplers.MNIST),
    Section("VDP++ on MNIST", vdp.MNIST),
    Section("Deep networks of images", (*samplers.CIFAR, *vdp.DEEP)),
    Section("The dissertation: where its sparsities come from", dissertation.ENTRIES, dissertation.ABOUT),
    Section("Which method: small regressions", comparison.UCI),
    Section("Which method: images", comparison.IMAGES),
    Section("Moments against sampling", about=moments.TEXT),
)
"""What the page shows, in this order."""
