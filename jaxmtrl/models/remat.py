"""What a block keeps from the forward pass for the backward pass, by name; what it does not keep is computed again.

Letters: M rows, T tokens, D embed, L layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
from jax.ad_checkpoint import checkpoint_name

Remat = Literal["none", "dots", "attention", "block", "offload"]

# Names of values inside a block that a policy may keep.
BLOCK_INPUT = "block_input"  # [M, T, D]
ATTENTION_OUTPUT = "attention_output"  # [M, T, N, H], before the output projection

named = checkpoint_name


def rematerialised(step: Callable[..., Any], remat: Remat) -> Callable[..., Any]:
    """`step` of a `lax.scan` over blocks with its residuals limited.

    none: everything the backward pass reads is kept. dots: products with weights and the output of attention are kept.
    attention: a block's input and the output of its attention. block: its input alone. offload: the same in the host's
    memory (TPU and GPU), so that L·M·T·D numbers leave the device.
    """
    policies = jax.checkpoint_policies
    if remat == "none":
        return step
    policy = {
        "dots": policies.save_from_both_policies(
            policies.dots_with_no_batch_dims_saveable, policies.save_only_these_names(ATTENTION_OUTPUT)
        ),
        "attention": policies.save_only_these_names(ATTENTION_OUTPUT),
        "block": policies.nothing_saveable,
        "offload": policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=[BLOCK_INPUT],
            offload_src="device",
            offload_dst="pinned_host",
        ),
    }[remat]
    # A scan's body is compiled by itself, so nothing can be merged with the forward pass and undo the recomputation.
    return jax.checkpoint(step, policy=policy, prevent_cse=False)
