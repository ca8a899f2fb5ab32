"""The JAX operations that may touch rows.

Each acts, under `vmap`, on every unit by itself, in the program that runs and not only in its
definition. tests/privacy/test_contamination.py changes one unit of a batch for every name here and
compares all others to the bit; a name without a case fails it. Add a name only with its case.

Left out are `regularized_incomplete_beta`, which goes on for all units until the slowest has
converged; `rng_bit_generator`, which makes a batch's numbers from the first unit's key, and with it
all random keys but threefry's; `svd`, which does not come back from some matrices with an infinite
number in them; and what no model has asked for.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, primitives

# What a function of one unit may do.
EACH_BY_ITSELF = frozenset(
    """
    abs acos acosh add add_any and argmax argmin asin asinh atan atan2 atanh bessel_i0e bessel_i1e
    bitcast_convert_type broadcast_in_dim cbrt ceil cholesky clamp clz complex concatenate cond conj
    conv_general_dilated convert_element_type copy cos cosh cumlogsumexp cummax cummin cumprod cumsum custom_jvp_call
    custom_linear_solve custom_vjp_call digamma div dot_general dynamic_slice dynamic_update_slice
    eigh empty2 eq erf erf_inv erfc exp exp2 expm1 fft floor gather ge gt igamma igamma_grad_a igammac imag
    integer_pow iota is_finite jit le le_to lgamma log log1p logistic lt lt_to lu max min mul mulhi name ne neg
    nextafter not optimization_barrier or pad platform_index polygamma population_count pow qr
    random_bits random_fold_in random_gamma random_seed random_split real reduce reduce_and
    reduce_max reduce_min reduce_or reduce_precision reduce_prod reduce_sum reduce_window
    reduce_window_max reduce_window_min reduce_window_sum reduce_xor rem remat2 reshape rev round
    rsqrt scan scatter scatter-add scatter-max scatter-min scatter-mul scatter-sub
    select_and_gather_add select_and_scatter_add select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh slice sort split sqrt square squeeze stack stop_gradient sub
    tan tanh threefry2x32 tile top_k transpose triangular_solve tridiagonal_solve unstack while
    xor zeta
    """.split()  # noqa: SIM905 (two pages otherwise)
)
# What a step may do besides, outside its release: it has nothing but public and released values.
WITHOUT_ROWS = EACH_BY_ITSELF | {
    "approx_top_k", "closed_call", "eig", "hessenberg",
    "householder_product", "regularized_incomplete_beta", "rng_bit_generator", "schur", "svd",
    "tridiagonal",
}  # fmt: skip
# Which of a few implementations this machine has: no value goes in. JAX does not export it.
_PLATFORM = "platform_index"


def acts_on_each(equation: Any) -> bool:
    """Whether an operation of a function of one unit does with it what it does with it alone."""
    return _named(equation, EACH_BY_ITSELF) and not any(map(_is_foreign_key, _kinds(equation)))


def is_plain(equation: Any) -> bool:
    """Whether an operation is a function of its inputs, and does nothing else."""
    return _named(equation, WITHOUT_ROWS)


def _named(equation: Any, names: frozenset[str]) -> bool:
    if equation.effects:
        return False
    if equation.primitive.name == _PLATFORM:
        return not equation.invars
    return equation.primitive in _of_jax(names)


@lru_cache
def _of_jax(names: frozenset[str]) -> frozenset[Primitive]:
    """JAX's own operations of these names: somebody else's could be called so, too."""
    known = [*vars(primitives).values(), *vars(jax.lax).values()]
    return frozenset(each for each in known if isinstance(each, Primitive) and each.name in names)


def _kinds(equation: Any) -> list[Any]:
    return [atom.aval for atom in [*equation.invars, *equation.outvars]]


def _is_foreign_key(kind: Any) -> bool:
    """Whether values are random keys that other numbers than threefry's are made from."""
    dtype = getattr(kind, "dtype", None)
    return (
        dtype is not None
        and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))
        and dtype != _threefry()
    )


@lru_cache
def _threefry() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype
