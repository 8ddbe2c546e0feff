"""Pre-processing: everything that a program computes of the graph alone is computed once.

gSampler (SOSP 2023, section 4.2). The program is traced to a jaxpr, and its equations are
divided in two. Those that depend on the graph alone run once, in the sampler's `init`; their
results are the sampler's state. The others run for every batch. The user marks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.extend import core

from jgs.sampling.checks import refuse_state

_CONSTANT, _OF_GRAPH, _OF_BATCH = range(3)


class _Split(NamedTuple):
    """A traced program: the variables that the graph's part computes and the batch's part
    reads, and what each equation depends on."""

    closed: core.ClosedJaxpr
    out_tree: Any
    kept: list[core.Var]
    owner: list[int]

    def part(self, owner: int, given: Sequence[Any], wanted: Sequence[Any]) -> Callable:
        """The equations of `owner`, and the constant ones, as a function of `given`."""
        owned = zip(self.closed.jaxpr.eqns, self.owner, strict=True)
        equations = [equation for equation, kind in owned if kind in (_CONSTANT, owner)]
        complete = self.closed.jaxpr
        names = complete.debug_info._replace(arg_names=None, result_paths=None)
        jaxpr = complete.replace(
            invars=list(given), outvars=list(wanted), eqns=equations, debug_info=names
        )
        return core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, self.closed.consts))


def once(program: Callable[..., Any], graph: Any, *rest: Any) -> list[jax.Array]:
    """What `program(graph, *rest)` computes of `graph` alone. `rest` may be shapes."""
    split, leaves = _split(program, graph, *rest), jax.tree.leaves(graph)
    given = split.closed.jaxpr.invars[: len(leaves)]
    return split.part(_OF_GRAPH, given, split.kept)(*leaves)


def each_time(
    program: Callable[..., Any], kept: Sequence[jax.Array], graph: Any, *rest: Any
) -> Any:
    """The result of `program(graph, *rest)`, given what `once` computed, `kept`."""
    split = _split(program, graph, *rest)
    avals: list[Any] = [variable.aval for variable in split.kept]
    have, want = ([(a.shape, a.dtype) for a in each] for each in (kept, avals))
    if have != want:
        refuse_state(kept)
    jaxpr = split.closed.jaxpr
    run = split.part(_OF_BATCH, [*jaxpr.invars, *split.kept], jaxpr.outvars)
    return jax.tree.unflatten(split.out_tree, run(*jax.tree.leaves((graph, *rest)), *kept))


def _split(program: Callable[..., Any], graph: Any, *rest: Any) -> _Split:
    closed, shapes = jax.make_jaxpr(program, return_shape=True)(graph, *rest)
    jaxpr, num_leaves = closed.jaxpr, len(jax.tree.leaves(graph))
    of = dict.fromkeys(jaxpr.constvars, _CONSTANT)
    of |= dict.fromkeys(jaxpr.invars[:num_leaves], _OF_GRAPH)
    of |= dict.fromkeys(jaxpr.invars[num_leaves:], _OF_BATCH)
    given, owner = set(jaxpr.invars), []
    kept: dict[core.Var, None] = {}

    def keep(variables: list[Any]) -> None:
        kept.update({v: None for v in variables if of[v] == _OF_GRAPH and v not in given})

    for equation in jaxpr.eqns:
        inputs = [v for v in equation.invars if not isinstance(v, core.Literal)]
        kind = max((of[v] for v in inputs), default=_CONSTANT)
        kind = _OF_BATCH if equation.effects else kind
        owner.append(kind)
        of |= dict.fromkeys(equation.outvars, kind)
        if kind == _OF_BATCH:
            keep(inputs)
    keep([v for v in jaxpr.outvars if not isinstance(v, core.Literal)])
    return _Split(closed, jax.tree.structure(shapes), list(kept), owner)
