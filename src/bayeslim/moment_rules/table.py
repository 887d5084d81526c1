"""Which torch function has which moment rule."""

from __future__ import annotations

import operator

import torch
import torch.nn.functional as F

from bayeslim.gaussian import MOMENT_RULES
from bayeslim.moment_rules import (
    activations,
    arithmetic,
    attention,
    clipped,
    interpolation,
    lengths,
    linear_maps,
    maxima,
    norms,
    pooling,
    powers,
    shapes,
    spread,
)

__all__: list[str] = []

_MOVING = (
    *(torch.reshape, torch.flatten, torch.unflatten, torch.permute, torch.transpose, torch.swapaxes, torch.movedim),
    *(torch.squeeze, torch.unsqueeze, torch.chunk, torch.split, torch.unbind, torch.narrow, torch.select, torch.flip),
    *(torch.roll, torch.index_select, torch.gather, torch.broadcast_to, torch.repeat_interleave, torch.clone),
    *(torch.detach, torch.t, torch.adjoint, F.pixel_shuffle, F.pixel_unshuffle),
    *(torch.Tensor.view, torch.Tensor.expand, torch.Tensor.repeat, torch.Tensor.contiguous, torch.Tensor.to),
    *(torch.Tensor.reshape, torch.Tensor.permute, torch.Tensor.flip),  # as methods also with the sizes one by one
    *(torch.Tensor.float, torch.Tensor.double, torch.Tensor.cpu, torch.Tensor.cuda),
    *(torch.moveaxis, torch.swapdims, torch.ravel, torch.fliplr, torch.flipud, torch.rot90),
    *(torch.tensor_split, torch.split_with_sizes, torch.diagonal, torch.tril, torch.triu, torch.take),
    *(torch.take_along_dim, torch.masked_select, torch.Tensor.unfold, torch.Tensor.bfloat16, F.channel_shuffle),
    *(F.max_unpool1d, F.max_unpool2d, F.max_unpool3d),
)
"""Functions that move, select, copy or convert elements."""

_ADDING = (torch.cumsum, torch.trace, F.fold, F.unfold)
"""Functions whose results are sums of elements, each taken once; the windows of `unfold` are sums of one."""

_LIKE = (torch.Tensor.expand_as, torch.Tensor.view_as, torch.Tensor.reshape_as, torch.Tensor.type_as)
"""Functions that take shape or type from another value."""

_DESCRIBING = (
    *(torch.zeros_like, torch.ones_like, torch.full_like, torch.empty_like, torch.rand_like, torch.randn_like),
    *(torch.Tensor.new_ones, torch.Tensor.new_full, torch.Tensor.new_empty, torch.Tensor.new_tensor, torch.numel),
    *(torch.Tensor.nelement, torch.Tensor.ndimension, torch.is_floating_point, torch.is_complex),
)
"""Functions that look at shape, type and device only, and whose results are certain."""

_PRODUCTS = (
    *(torch.matmul, torch.mm, torch.mv, torch.bmm, torch.dot, torch.inner, torch.outer, torch.kron, torch.tensordot),
    *(torch.vdot, torch.linalg.vecdot),
)
"""Sums of products of two operands."""

_SMOOTH = (
    *(torch.tanh, torch.sigmoid, torch.sin, torch.cos, torch.erf, F.gelu, F.silu, F.mish, F.softplus, F.logsigmoid),
    *(F.elu, F.selu, F.celu, F.hardswish, F.tanhshrink, F.softsign),
)
"""Elementwise functions by quadrature."""

MOMENT_RULES.update(
    {
        torch.add: arithmetic.add,
        torch.sub: arithmetic.sub,
        torch.mul: arithmetic.mul,
        torch.div: arithmetic.div,
        torch.true_divide: arithmetic.div,
        torch.neg: arithmetic.neg,
        torch.square: arithmetic.square,
        torch.lerp: arithmetic.lerp,
        torch.where: arithmetic.where,
        torch.Tensor.where: lambda input, condition, other: arithmetic.where(condition, input, other),
        torch.rsub: lambda input, other, *, alpha=1: arithmetic.sub(other, input, alpha=alpha),
        **{function: arithmetic.bilinear(function) for function in _PRODUCTS},
        torch.addmm: linear_maps.added_product(torch.mm),
        torch.addmv: linear_maps.added_product(torch.mv),
        torch.baddbmm: linear_maps.added_product(torch.bmm),
        torch.addcmul: linear_maps.addcmul,
        torch.einsum: linear_maps.einsum,
        torch.sum: linear_maps.sum,
        torch.mean: linear_maps.mean,
        torch.var: spread.var,
        torch.std: spread.std,
        torch.var_mean: spread.var_mean,
        torch.std_mean: spread.std_mean,
        **{
            function: linear_maps.weighted(function)
            for function in (
                *(F.linear, torch.conv1d, torch.conv2d, torch.conv3d),
                *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
            )
        },
        **{function: shapes.moved(function) for function in (*_MOVING, *_ADDING)},
        torch.tile: shapes.moved(torch.Tensor.tile),  # whose sizes may also stand one by one
        **{function: shapes.like(function) for function in _LIKE},
        **{function: shapes.described(function) for function in _DESCRIBING},
        torch.cat: shapes.cat,
        torch.concat: shapes.cat,
        torch.concatenate: shapes.cat,
        torch.stack: shapes.stack,
        torch.hstack: shapes.hstack,
        torch.vstack: shapes.vstack,
        torch.masked_fill: shapes.masked_fill,
        torch.index_fill: shapes.index_fill,
        F.interpolate: interpolation.interpolate,
        F.pad: shapes.pad,
        F.relu: activations.relu,
        torch.relu: activations.relu,
        F.leaky_relu: activations.leaky_relu,
        torch.exp: activations.exp,
        torch.expm1: activations.expm1,
        torch.pow: activations.pow,
        torch.sqrt: lambda x: powers.power(x, 0.5),
        torch.rsqrt: lambda x: powers.power(x, -0.5),
        torch.reciprocal: lambda x: powers.power(x, -1),
        F.glu: activations.glu,
        torch.clamp: clipped.clamp,
        torch.clip: clipped.clamp,
        torch.clamp_min: clipped.clamp_min,
        torch.clamp_max: clipped.clamp_max,
        torch.abs: clipped.abs,
        F.hardtanh: clipped.hardtanh,
        F.relu6: clipped.relu6,
        F.hardsigmoid: clipped.hardsigmoid,
        F.prelu: clipped.prelu,
        F.rrelu: clipped.rrelu,
        torch.maximum: maxima.maximum,
        torch.minimum: maxima.minimum,
        torch.amax: maxima.amax,
        torch.amin: maxima.amin,
        torch.max: maxima.max,
        torch.min: maxima.min,
        **{function: activations.elementwise(function) for function in _SMOOTH},
        **{
            function: pooling.max_pool(pool, dimensions)
            for dimensions, pool, with_indices in (
                (1, F.max_pool1d, F.max_pool1d_with_indices),
                (2, F.max_pool2d, F.max_pool2d_with_indices),
                (3, F.max_pool3d, F.max_pool3d_with_indices),
                (1, F.adaptive_max_pool1d, F.adaptive_max_pool1d_with_indices),
                (2, F.adaptive_max_pool2d, F.adaptive_max_pool2d_with_indices),
                (3, F.adaptive_max_pool3d, F.adaptive_max_pool3d_with_indices),
            )
            for function in (pool, with_indices)
        },
        F.avg_pool1d: pooling.avg_pool(1),
        F.avg_pool2d: pooling.avg_pool(2),
        F.avg_pool3d: pooling.avg_pool(3),
        F.adaptive_avg_pool1d: pooling.adaptive_avg_pool(1),
        F.adaptive_avg_pool2d: pooling.adaptive_avg_pool(2),
        F.adaptive_avg_pool3d: pooling.adaptive_avg_pool(3),
        F.batch_norm: norms.batch_norm,
        F.layer_norm: norms.layer_norm,
        F.group_norm: norms.group_norm,
        F.instance_norm: norms.instance_norm,
        F.rms_norm: lengths.rms_norm,
        F.normalize: lengths.normalize,
        **{function: norms.dropout for function in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)},
        F.alpha_dropout: norms.alpha_dropout,
        F.feature_alpha_dropout: norms.alpha_dropout,
        F.softmax: attention.softmax,
        torch.softmax: attention.softmax,
        F.softmin: attention.softmin,
        F.log_softmax: attention.log_softmax,
        torch.log_softmax: attention.log_softmax,
        F.scaled_dot_product_attention: attention.scaled_dot_product_attention,
        F.multi_head_attention_forward: attention.multi_head_attention_forward,
    }
)
# The same rules under the names by which torch hands over a method (`tensor + gaussian`) and torch.compile an operator.
for _function, _rule in list(MOMENT_RULES.items()):
    _method = getattr(torch.Tensor, getattr(_function, "__name__", ""), None)
    if _method is not None:
        MOMENT_RULES.setdefault(_method, _rule)
for _name, _function in (("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("matmul", torch.matmul)):
    MOMENT_RULES[getattr(operator, _name)] = MOMENT_RULES[_function]
MOMENT_RULES[operator.truediv] = arithmetic.div
MOMENT_RULES[operator.pow] = activations.pow
MOMENT_RULES[operator.neg] = arithmetic.neg
