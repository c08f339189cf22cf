"""Rotary position frequencies and the ways published models stretch them to longer contexts.

Frequencies are computed on the host, once a trace, with the roundings of the `transformers` library: at position
5,000 one unit in the last place of a frequency turns a head by 3e-4 radians, which is enough to see in the logits.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array | np.ndarray

Turns = tuple[jax.Array, jax.Array]  # sines and cosines of every pair, times the amplitude: f32 [B, T, 1, H/2] each


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope:
    """How positions turn a head; see `config.sections.ModelSection` for what each field means."""

    width: int  # H, even
    theta: float
    scaling: str  # "none", "linear", "llama3" or "yarn"
    factor: float
    original_length: int  # tokens
    low_frequency: float
    high_frequency: float
    beta_fast: float
    beta_slow: float
    truncate: bool
    attention_factor: float | None

    def frequencies(self) -> Array:
        """Radians a position for each pair of dimensions, f32 [H/2], fastest first.

        "none" is computed in f32 by the device's own power function; the others as `transformers` does.
        """
        half = self.width // 2
        if self.scaling == "none":
            return self.theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
        periods = _powers(self.theta, self.width)
        if self.scaling == "linear":
            return np.float32(1) / periods / np.float32(self.factor)
        if self.scaling == "llama3":
            return self._llama3(np.float32(1) / periods)
        return self._yarn(periods)

    def amplitude(self) -> float:
        """What sines and cosines are multiplied by: YaRN's attention factor, else 1."""
        if self.scaling != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return yarn_amplitude(self.factor)

    def turns(self, positions: jax.Array) -> Turns:
        """Of positions i32 [...], two arrays f32 [..., 1, H/2]; the same in every block."""
        angles = positions[..., None, None].astype(jnp.float32) * self.frequencies()
        sin, cos = jnp.sin(angles), jnp.cos(angles)
        if (amplitude := self.amplitude()) != 1.0:
            sin, cos = sin * amplitude, cos * amplitude
        return sin, cos

    def _llama3(self, plain: np.ndarray) -> np.ndarray:
        """Slow pairs divided by the factor, fast ones kept, a linear blend between (Llama 3.1's reference code)."""
        one, low, high, length = np.float32(1), self.low_frequency, self.high_frequency, self.original_length
        wavelengths = one / plain * np.float32(2 * math.pi)  # torch divides a number by an array in these two steps
        blend = (one / wavelengths * np.float32(length) - np.float32(low)) / np.float32(high - low)
        factor = np.float32(self.factor)
        mixed = (1 - blend) * plain / factor + blend * plain
        slow, fast = wavelengths > length / low, wavelengths < length / high
        return np.where(slow, plain / factor, np.where(fast, plain, mixed)).astype(np.float32)

    def _yarn(self, periods: np.ndarray) -> np.ndarray:
        """Pairs that turn less than beta_slow times in the original length are stretched, those above beta_fast are
        not (Peng et al., YaRN, arXiv 2309.00071, section 3.2)."""

        def pair_of(turns: float) -> float:
            return self.width * math.log(self.original_length / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        first, last = pair_of(self.beta_fast), pair_of(self.beta_slow)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, self.width - 1)
        last = last + 0.001 if first == last else last
        ramp = (np.arange(self.width // 2, dtype=np.float32) - np.float32(first)) / np.float32(last - first)
        kept = 1 - np.clip(ramp, np.float32(0), np.float32(1))
        stretched = np.float32(1) / (np.float32(self.factor) * periods)
        return (stretched * (1 - kept) + np.float32(1) / periods * kept).astype(np.float32)


def yarn_amplitude(factor: float, scale: float = 1.0) -> float:
    """0.1 · scale · ln(factor) + 1, YaRN's recommended temperature; 1 where nothing is stretched."""
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _powers(theta: float, width: int) -> np.ndarray:
    """theta^(2i/H) for i < H/2: exponents rounded to f32, the power to the nearest f32, as torch's is."""
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    return np.power(np.float64(theta), exponents.astype(np.float64)).astype(np.float32)


def rotate(x: jax.Array, turns: Turns) -> jax.Array:
    """Rotary position embedding, halves convention (Su et al., arXiv 2104.09864), of x [B, T, heads, H]."""
    sin, cos = turns
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
