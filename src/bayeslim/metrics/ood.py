"""How well a score (entropy, mutual information, variance) tells unfamiliar inputs from familiar.

Throughout, out-of-distribution is the positive class and a larger score means less familiar. For a
confidence, which is larger for familiar inputs, pass the negative.
"""

import torch
from torch import Tensor

from bayeslim.metrics.checks import score_vector


def auroc(scores_in: Tensor, scores_out: Tensor) -> float:
    r"""Return the area under the ROC curve of a score that should be larger out of distribution.

    .. math:: P(s_{out} > s_{in}) + \tfrac12 P(s_{out} = s_{in})
              = \frac{1}{N M} \sum_{m=1}^{M} \sum_{n=1}^{N}
              \left( [s^{out}_m > s^{in}_n] + \tfrac12 [s^{out}_m = s^{in}_n] \right)

    with :math:`s^{in}_n, s^{out}_m` the scores of the N inputs in and the M inputs out of the
    distribution: the Mann-Whitney statistic over N M, from the rank of each out-score among the
    sorted in-scores, O((N + M) log N). 0.5 is chance; below 0.5 the score has the wrong sign.

    Args:
        scores_in: (N,), scores of in-distribution inputs.
        scores_out: (M,), scores of out-of-distribution inputs.

    Returns:
        A float in [0, 1].

    Example:
        >>> scores_in, scores_out = torch.tensor([0.1, 0.2]), torch.tensor([0.2, 0.9])
        >>> auroc(scores_in, scores_out)
        0.875
    """
    familiar = score_vector("scores_in", scores_in).sort().values
    unfamiliar = score_vector("scores_out", scores_out).to(familiar.device)
    below = torch.searchsorted(familiar, unfamiliar)
    below_or_equal = torch.searchsorted(familiar, unfamiliar, right=True)
    # A win counts in both ranks and a tie in one: integers, so the sum is exact.
    return (below + below_or_equal).sum().item() / (2 * len(familiar) * len(unfamiliar))


def fpr_at_tpr(scores_in: Tensor, scores_out: Tensor, tpr: float = 0.95) -> float:
    r"""Return the fraction of familiar inputs flagged when a share `tpr` of unfamiliar ones is.

    .. math:: \frac{1}{N} \sum_{n=1}^{N} [s^{in}_n \ge t], \quad
              t = \max \{ t' : \frac{1}{M} \sum_{m=1}^{M} [s^{out}_m \ge t'] \ge r \}

    with :math:`s^{in}_n, s^{out}_m` the scores of the N inputs in and the M inputs out of the
    distribution, :math:`r` the wanted true-positive rate and :math:`t` the largest threshold that
    reaches it; no interpolation between thresholds. Papers that call the in-distribution class
    positive report another number: `fpr_at_tpr(-scores_out, -scores_in)`.

    Args:
        scores_in: (N,), scores of in-distribution inputs.
        scores_out: (M,), scores of out-of-distribution inputs.
        tpr: the least fraction of out-of-distribution inputs to flag, in (0, 1].

    Returns:
        A float in [0, 1]; smaller is better.

    Example:
        >>> scores_in, scores_out = torch.tensor([0.1, 0.3, 0.5, 0.7]), torch.tensor([0.6, 0.9])
        >>> fpr_at_tpr(scores_in, scores_out)
        0.25
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"`tpr` must be in (0, 1], got {tpr!r}: pass e.g. 0.95")
    familiar = score_vector("scores_in", scores_in)
    unfamiliar = score_vector("scores_out", scores_out).to(familiar.device)
    count = len(unfamiliar)
    # The least k with k / M >= tpr. Not ceil(tpr * M): 0.07 * 100 rounds to just above 7.
    reached = torch.arange(1, count + 1, dtype=torch.float64, device=familiar.device) / count
    needed = int((reached < tpr).sum()) + 1
    threshold = unfamiliar.sort(descending=True).values[needed - 1]
    return (familiar >= threshold).double().mean().item()
