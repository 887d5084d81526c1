"""torch's Transformer containers in a form that can be traced: their own forward asks for shapes and settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

__all__ = ["traceable_forward"]


def traceable_forward(module: nn.Module) -> Callable[..., Any] | None:
    """A function that calls the same children in the same way as `module` does; None where there is none.

    Only what depends on what is the same: masks are passed on as they are, without the fused paths and hints.
    """
    forward = FORWARDS.get(type(module).forward)
    if forward is None or module._forward_hooks or module._forward_pre_hooks:
        return None
    return forward.__get__(module)


def _encoder(self: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = None) -> Any:
    for layer in self.layers:
        src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
    return src if self.norm is None else self.norm(src)


def _encoder_layer(
    self: Any, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = False
) -> Any:
    if self.norm_first:
        src = src + self._sa_block(self.norm1(src), src_mask, src_key_padding_mask)
        return src + self._ff_block(self.norm2(src))
    src = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask))
    return self.norm2(src + self._ff_block(src))


def _decoder(self: Any, tgt: Any, memory: Any, *masks: Any, **options: Any) -> Any:
    causal = {"tgt_is_causal", "memory_is_causal"}  # hints, which change no result
    given = {name: value for name, value in options.items() if name not in causal}
    for layer in self.layers:
        tgt = layer(tgt, memory, *masks[:4], **given)
    return tgt if self.norm is None else self.norm(tgt)


FORWARDS: dict[Any, Any] = {
    nn.TransformerEncoder.forward: _encoder,
    nn.TransformerEncoderLayer.forward: _encoder_layer,
    nn.TransformerDecoder.forward: _decoder,
    nn.TransformerDecoderLayer.forward: nn.TransformerDecoderLayer.forward,
}
