"""`otm.solve` and `otm.alpha` as a user meets them: kinds in and out, values, and what is kept."""

from __future__ import annotations

import copy
import dataclasses
import html.parser
import itertools
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import otm
from otm._core.probs.distribution import total_variation
from otm.coupling import (
    GreedyRule,
    OptimalPlan,
    RecursiveRejectionWithoutReplacement,
    SpecHub,
    TablePlan,
    TargetOnly,
)
from otm.drafts import (
    IID,
    DraftDistribution,
    Greedy,
    HubPairs,
    Independent,
    Joint,
    Top,
    WithoutReplacement,
)
from otm.errors import (
    InvalidDraftCountError,
    InvalidParameterError,
    ProblemTooLargeError,
    SolverError,
    UnknownMethodError,
)
from otm.testing import exact_acceptance, exact_output_distribution
from otm.testing.strategies import pairs, problems

F = Fraction
# Powers of two: the same numbers in every type.  Asymmetric: swapped distributions have another α.
P, Q = [0.5, 0.25, 0.25, 0.0], [0.125, 0.25, 0.5, 0.125]
ALPHA = F(1, 8) + F(1, 4) + F(7, 16)  # k = 2: q(H) + 1 − p(H)^2 at H = the first two tokens


def of_torch(dtype: str, **options: Any) -> Callable[[list[float]], Any]:
    def tensor(law: list[float]) -> Any:
        torch = pytest.importorskip("torch")
        return torch.tensor(law, dtype=getattr(torch, dtype), **options)

    return tensor


def strided(law: list[float]) -> Any:
    return np.repeat(law, 3)[::3][::-1][::-1]


def strided_tensor(law: list[float]) -> Any:
    torch = pytest.importorskip("torch")
    return torch.tensor([law, law, law]).T.contiguous().T[1]


FLOAT_KINDS: dict[str, Callable[[list[float]], Any]] = {
    "list": list,
    "tuple": tuple,
    "float64": np.array,
    "float32": lambda law: np.array(law, dtype=np.float32),
    "float16": lambda law: np.array(law, dtype=np.float16),
    "longdouble": lambda law: np.array(law, dtype=np.longdouble),
    "other byte order": lambda law: np.array(law, dtype=">f8"),
    "strided array": strided,
    "read-only array": lambda law: np.broadcast_to(np.array(law), 4),
    "objects": lambda law: np.array(law, dtype=object),
    "NumPy scalars": lambda law: [np.float32(x) for x in law],
    "fractions and floats": lambda law: [F(law[0]), *law[1:]],
    "torch float64": of_torch("float64"),
    "torch float32": of_torch("float32"),
    "torch float16": of_torch("float16"),
    "torch bfloat16": of_torch("bfloat16"),
    "torch with a graph": of_torch("float32", requires_grad=True),
    "strided tensor": strided_tensor,
    "list of tensors": lambda law: [of_torch("float64")([x])[0] for x in law],
}
EXACT_KINDS: dict[str, Callable[[list[float]], Any]] = {
    "fractions": lambda law: [F(x) for x in law],
    "tuple of fractions": lambda law: tuple(F(x) for x in law),
    "array of fractions": lambda law: np.array([F(x) for x in law]),
    "fractions and integers": lambda law: [F(x) if x else 0 for x in law],
    "fractions and NumPy integers": lambda law: np.array(
        [F(x) if x else np.int64(0) for x in law], dtype=object
    ),
}


@pytest.mark.parametrize("kind", FLOAT_KINDS)
def test_every_kind_of_floats_gives_floats(kind: str) -> None:
    """Catches a type that loses bits on the way in, or a NumPy scalar on the way out."""
    solution = otm.solve(FLOAT_KINDS[kind](P), FLOAT_KINDS[kind](Q), 2)
    assert type(solution.alpha) is float
    assert solution.alpha == ALPHA
    assert solution.problem.draft.dtype == np.float64
    assert solution.problem.draft.tolist() == P
    solution.certificate.check()
    if kind == "torch with a graph":  # alpha has gradients, and wants two tensors for that
        return
    assert otm.alpha(FLOAT_KINDS[kind](P), Q, 2) == ALPHA
    assert otm.alpha(P, FLOAT_KINDS[kind](Q), 2) == ALPHA


@pytest.mark.parametrize("kind", EXACT_KINDS)
def test_every_kind_of_fractions_gives_fractions(kind: str) -> None:
    solution = otm.solve(EXACT_KINDS[kind](P), EXACT_KINDS[kind](Q), 2)
    assert type(solution.alpha) is Fraction
    assert solution.alpha == solution.plan.acceptance == ALPHA
    assert solution.certificate.gap == 0
    # floats on one side make the other side floats too
    assert type(otm.alpha(EXACT_KINDS[kind](P), Q, 2)) is float
    assert type(otm.alpha(P, EXACT_KINDS[kind](Q), 2)) is float


def test_integers_of_numpy_do_not_overflow_among_fractions() -> None:
    """Catches fractions over 64-bit integers: 0 of NumPy plus 1/10^30 is an OverflowError."""
    tiny = F(1, 10**30)
    p = np.array([np.int64(0), tiny, 1 - tiny], dtype=object)
    assert otm.alpha(p, [F(0), F(1, 2), F(1, 2)], 1) == F(1, 2) + tiny


@pytest.mark.parametrize("off", [F(1, 10**8), F(1, 10**30)])
def test_fractions_are_normalised_exactly_however_little_they_are_off(off: Fraction) -> None:
    """Catches the tolerance for the rounding of floats where there is none."""
    problem = otm.Problem([F(1, 2), F(1, 2) + off], [F(1, 2), F(1, 2) - off], 1)
    assert problem.draft.sum() == problem.target.sum() == 1
    assert otm.alpha(problem.draft, problem.target, 1) == 1 - off / (1 - off**2)


@pytest.mark.parametrize("law", [[1, 0], np.array([1, 0]), np.array([1, 0], dtype=np.uint8)])
def test_integers_are_laws_of_one_token(law: Any) -> None:
    assert otm.alpha(law, [0.25, 0.75], 5) == 0.25


@pytest.mark.parametrize("k", [2, np.int64(2), np.uint8(2), np.array(2)])
def test_k_may_be_any_integer(k: Any) -> None:
    assert otm.solve(P, Q, k).alpha == otm.alpha(P, Q, k) == ALPHA
    assert type(otm.alpha(P, Q, k)) is float
    assert type(otm.solve(P, Q, k).problem.k) is int


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (2, 3), (1, 1, 4)])
@pytest.mark.parametrize("exact", [True, False])
def test_an_array_of_k_keeps_its_shape(shape: tuple[int, ...], exact: bool) -> None:
    """Catches a flattened or a 0-dimensional answer, and one in floats where fractions are due."""
    laws = [[F(x) for x in law] for law in (P, Q)] if exact else [P, Q]
    ks = np.arange(1, 1 + int(np.prod(shape))).reshape(shape)
    for k in (ks, ks.tolist(), ks.astype(np.uint8), ks.astype(object)):
        values = otm.alpha(*laws, k)
        assert values.shape == shape
        assert values.dtype == (object if exact else np.float64)
        for index in np.ndindex(shape):
            assert values[index] == otm.alpha(*laws, int(ks[index]))
            assert isinstance(values[index], Fraction if exact else float)


def test_k_may_be_a_tensor() -> None:
    torch = pytest.importorskip("torch")
    assert otm.alpha(P, Q, torch.tensor([1, 2])).tolist() == otm.alpha(P, Q, [1, 2]).tolist()


@pytest.mark.parametrize(
    "k",
    [[True, True], [1.0, 2.0], [1, 0], [-1, 2], [1, None], ["1"], [[1, 2], [3]], [1 + 0j]],
)  # fmt: skip
def test_an_array_with_anything_but_counts_is_refused(k: Any) -> None:
    with pytest.raises(InvalidDraftCountError, match="k"):
        otm.alpha(P, Q, k)


# Values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 8, 100])
@pytest.mark.parametrize("b", [F(0), F(1, 10), F(1, 4), F(1, 2), F(9, 10), F(1)])
def test_bernoulli_laws(b: Fraction, k: int) -> None:
    """SpecTr, equation 10: p = Ber(1/4), q = Ber(b)."""
    expected = min(b, 1 - F(3, 4) ** k) + min(1 - b, 1 - F(1, 4) ** k)
    assert otm.alpha([F(3, 4), F(1, 4)], [1 - b, b], k) == expected
    in_floats = otm.alpha([0.75, 0.25], [1 - float(b), float(b)], k)
    assert in_floats == pytest.approx(float(expected), abs=1e-15)


@pytest.mark.parametrize(("d", "r"), [(2, 2), (4, 2), (6, 3), (8, 8), (12, 4), (5, 1)])
@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_uniform_laws(d: int, r: int, k: int) -> None:
    """With p = U(d), q = U(d/r): 1 − (1 − 1/r)^k."""
    target = [F(r, d)] * (d // r) + [F(0)] * (d - d // r)
    assert otm.alpha([F(1, d)] * d, target, k) == 1 - (1 - F(1, r)) ** k


def test_the_prefixes_are_scanned_not_bisected() -> None:
    """Along the prefixes in q/p the objective is not unimodal here."""
    p, q = [F(x, 17) for x in (7, 2, 6, 2)], [F(x, 9) for x in (1, 1, 4, 3)]
    sets = itertools.chain.from_iterable(itertools.combinations(range(4), m) for m in range(5))
    brute_force = min(sum(q[x] for x in H) + 1 - sum(p[x] for x in H) ** 2 for H in sets)
    assert otm.alpha(p, q, 2) == brute_force


def test_the_first_argument_is_the_draft() -> None:
    """Catches swapped distributions, in each of the functions."""
    narrow, wide = [0.5, 0.5, 0, 0], [0.25] * 4
    assert otm.alpha(narrow, wide, 2) == otm.solve(narrow, wide, 2).alpha == 0.5
    assert otm.alpha(wide, narrow, 2) == otm.solve(wide, narrow, 2).alpha == 0.75
    assert otm.Problem(narrow, wide, 2).draft.tolist() == narrow
    assert otm.solve(narrow, wide, 2).plan.output_distribution().tolist() == wide


def as_tensor(law: list[float]) -> Any:
    return pytest.importorskip("torch").tensor(law, dtype=pytest.importorskip("torch").float64)


@pytest.mark.parametrize("kind", [as_tensor, lambda law: otm.SparseProbs(range(4), law)])
def test_the_first_argument_is_the_draft_in_every_kind(kind: Any) -> None:
    narrow, wide = kind([0.5, 0.5, 0, 0]), kind([0.25] * 4)
    for function in (otm.alpha, lambda *given: otm.solve(*given).alpha):
        assert float(function(narrow, wide, 2)) == 0.5
        assert float(function(wide, narrow, 2)) == 0.75
        assert list(map(float, function(narrow, wide, [2, 2]))) == [0.5, 0.5]


def test_either_law_may_have_rows_of_any_number_of_axes() -> None:
    """Bug: an argument that is not asked for its axes."""
    law, rows = [0.75, 0.25], np.array([[[0.25, 0.75]], [[0.5, 0.5]]])
    for shape in ((2, 2), (2, 1, 2)):
        many = rows.reshape(shape)
        assert otm.alpha(law, many, 2).ravel().tolist() == [0.6875, 0.9375]
        assert otm.alpha(many, law, 2).ravel().tolist() == [0.6875, 1]


@given(problems(exact=True))
def test_one_draft_gives_one_minus_total_variation(problem: otm.Problem) -> None:
    p, q = problem.draft, problem.target
    assert otm.alpha(p, q, 1) == 1 - total_variation(p, q)


@pytest.mark.parametrize("k", [1, 2, 10**6, 2**52])
@pytest.mark.parametrize("one", [[1.0], [F(1)], [1]])
def test_one_token_is_always_accepted(one: Any, k: int) -> None:
    solution = otm.solve(one, one, k)
    assert solution.alpha == 1
    assert otm.alpha(one, one, k) == 1


@given(problems(exact=True), st.randoms(use_true_random=False))
def test_the_names_of_tokens_do_not_matter(problem: otm.Problem, random: Any) -> None:
    """Catches an index into the sorted order that is taken for a token, or the reverse."""
    order = list(range(problem.n))
    random.shuffle(order)
    solution = otm.solve(problem.draft, problem.target, problem.k)
    permuted = otm.solve(problem.draft[order], problem.target[order], problem.k)
    assert permuted.alpha == solution.alpha
    assert (permuted.plan.output_distribution() == problem.target[order]).all()
    ratios = solution.problem.by_ratio.ratio
    if len(set(ratios)) == len(ratios):  # without ties there is one order, and one plan
        assert (permuted.plan.accepted_mass == solution.plan.accepted_mass[order]).all()
        drafts = [random.choice(np.flatnonzero(problem.draft)) for _ in range(problem.k)]
        renamed = [order.index(x) for x in drafts]
        expected = solution.plan.conditional(drafts)[order]
        assert (permuted.plan.conditional(renamed) == expected).all()


@given(problems())
def test_another_draft_never_hurts(problem: otm.Problem) -> None:
    exact = problem.to_exact()
    for values in (otm.alpha(exact.draft, exact.target, range(1, 9)),):
        assert (np.diff(values) >= 0).all()
    values = otm.alpha(problem.draft, problem.target, [1, 2, 3, 8, 10**3, 10**9])
    assert (np.diff(values) >= -1e-15).all()
    assert values.max() <= 1
    assert values.max() <= problem.target[problem.draft > 0].sum() * (1 + 1e-15)


# The solution -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        "simplex",
        "",
        "AUTO",
        None,
        0,
        ["auto"],
        {},
        np.array(["auto"] * 2),
        pytest.param(10**5000, id="a number that Python does not write"),
    ],
)
def test_an_unknown_method_is_answered_with_the_known_ones(method: Any) -> None:
    with pytest.raises(UnknownMethodError, match="auto, closed-form, lp-highs, lp-cvxpy"):
        otm.solve(P, Q, 2, method=method)


@pytest.mark.parametrize("limit", ["x", None, -1, float("nan"), [10**9], 1j])
@pytest.mark.parametrize("method", ["auto", "lp-highs"])
def test_a_memory_limit_is_a_number_of_bytes(limit: Any, method: str) -> None:
    """Catches a foreign TypeError, and a limit that only some methods look at."""
    with pytest.raises(InvalidParameterError, match=r"memory_limit is .*; give a number of bytes"):
        otm.solve([0.75, 0.25], [0.25, 0.75], 2, method=method, memory_limit=limit)


def test_nothing_at_all_may_be_the_limit() -> None:
    """Bug: a limit of zero raises although the call needs no memory."""
    assert otm.solve([0.75, 0.25], [0.25, 0.75], 2, memory_limit=0).alpha == 0.6875
    with pytest.raises(ProblemTooLargeError):
        otm.solve([0.75, 0.25], [0.25, 0.75], 2, method="lp-highs", memory_limit=0)


def test_the_chosen_method_is_stated_with_a_reason() -> None:
    for method in ("auto", "closed-form"):
        solution = otm.solve(P, Q, 2, method=method)
        assert solution.method == "closed-form"
        assert "prefixes" in solution.why


@pytest.mark.parametrize("exact", [True, False])
def test_the_representation_says_what_was_found(exact: bool) -> None:
    laws = [[F(x) for x in law] for law in (P, Q)] if exact else [P, Q]
    lines = repr(otm.solve(*laws, 2)).splitlines()
    assert lines[0] == "OTM-k solution"
    fields = dict(line.split(maxsplit=1) for line in lines[1:])
    assert set(fields) == {"problem", "numbers", "α", "gap", "method"}
    assert fields["problem"] == "n = 4 tokens, k = 2 drafts"
    assert fields["α"] == ("0.8125 = 13/16" if exact else "0.8125")
    assert fields["gap"].startswith("0 " if exact else "1e-14 ")
    assert fields["method"].startswith("closed-form: ")


def test_the_representation_does_not_write_out_long_fractions() -> None:
    """Catches Python's limit of 4,300 digits: printing a solution would end in a ValueError."""
    solution = otm.solve([F(1, 3), F(2, 3)], [F(1), F(0)], 20_000)
    assert len(repr(solution)) < 400
    assert "=" not in repr(solution).splitlines()[3]
    assert "1" in solution._repr_html_()


class Reader(html.parser.HTMLParser):
    """Collects the text and checks that every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_html_representation_is_escaped_and_complete() -> None:
    """Catches text of the solution that a notebook would read as markup."""
    hostile = "<script>alert(1)</script> & <b>"
    solution = dataclasses.replace(otm.solve(P, Q, 2), why=hostile)
    page = Reader(solution._repr_html_())
    assert not page.open
    assert page.tags <= {"table", "caption", "tr", "th", "td", "details", "summary"}
    assert any(hostile in words for words in page.words)
    assert "0.8125" in page.words
    assert "Σ q(x) over p(x) > 0" in page.words  # the bounds too, escaped
    assert len([word for word in page.words if word in ("lower", "upper")]) == 10


def test_inputs_are_neither_changed_nor_kept() -> None:
    """Catches in-place normalisation, and a result that changes with its input."""
    p, q = np.array(P), np.array(Q)
    before = [x.copy() for x in (p, q)]
    solution = otm.solve(p, q, 2)
    assert otm.alpha(p, q, 2) == solution.alpha
    _ = solution.plan, solution.certificate, solution.bounds, repr(solution)
    assert (p == before[0]).all()
    assert (q == before[1]).all()
    assert p.flags.writeable
    for law in (solution.problem.draft, solution.problem.target):
        assert not np.shares_memory(law, p)
        assert not np.shares_memory(law, q)
        with pytest.raises(ValueError, match="read-only"):
            law[0] = 0
    p[:] = 0
    assert solution.plan.output_distribution().sum() == pytest.approx(1)


def test_solutions_are_frozen() -> None:
    solution = otm.solve(P, Q, 2)
    for frozen, name in (
        (solution, "alpha"),
        (solution.certificate, "lower"),
        (solution.plan, "problem"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(frozen, name, 1)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("travel", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_solutions_plans_and_certificates_can_be_sent(
    exact: bool, used: bool, travel: Callable[[Any], Any]
) -> None:
    """Catches a field that does not pickle, such as a function made on the spot."""
    laws = [[F(x) for x in law] for law in (P, Q)] if exact else [P, Q]
    solution = otm.solve(*laws, 2)
    uniforms = [0.5, 0.1, 0.9, 0.3]
    if used:
        _ = solution.bounds, solution.plan.select([0, 1], uniforms), solution.certificate.check()
    sent = travel(solution)
    assert sent.alpha == solution.alpha
    assert repr(sent) == repr(solution)
    for plan in (sent.plan, travel(solution.plan)):
        assert (plan.output_distribution() == solution.plan.output_distribution()).all()
        assert plan.select([0, 1], uniforms).token == solution.plan.select([0, 1], uniforms).token
    for proof in (sent.certificate, travel(solution.certificate)):
        proof.check()
        assert proof.to_document() == solution.certificate.to_document()


def test_one_solution_serves_many_threads() -> None:
    """Catches a table that another thread sees half built."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(2_000), 2)
    drafts = rng.choice(2_000, (500, 4), p=p)
    uniforms = rng.random((500, 6))
    expected = otm.solve(p, q, 4).plan.select(drafts, uniforms)
    for _ in range(5):
        solution = otm.solve(p, q, 4)
        barrier = threading.Barrier(8)

        def work(solution: otm.Solution = solution, barrier: Any = barrier) -> Any:
            barrier.wait()
            solution.certificate.check()
            return solution.plan.select(drafts, uniforms)

        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(work) for _ in range(8)]:
                token, index = future.result()
                assert (token == expected.token).all()
                assert (index == expected.index).all()


@pytest.mark.parametrize(
    ("method", "other"), [("lp-highs", "cvxpy.solve_cvxpy"), ("lp-cvxpy", "highs.solve_highs")]
)
def test_each_method_is_solved_by_its_own_solver(
    method: Any, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: one solver under both names, so that they agree however wrong it is."""
    pytest.importorskip("cvxpy")
    monkeypatch.setattr(f"otm.optimum.solvers.{other}", lambda _: pytest.fail("the other solver"))
    solution = otm.solve([0.75, 0.25], [0.25, 0.75], 2, method=method)
    assert solution.alpha == pytest.approx(0.6875, abs=1e-9)
    assert solution.method == method
    solution.certificate.check()
    assert solution.certificate.gap < 1e-6


@pytest.mark.parametrize("solver", ["highs", "cvxpy"])
def test_the_name_of_a_method_chooses_the_solver(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches the names of the solvers the wrong way round, whether they are installed or not."""

    def called(_: object) -> None:
        raise SolverError(solver)

    monkeypatch.setattr(f"otm.optimum.solvers.solve_{solver}", called)
    with pytest.raises(SolverError, match=f"^{solver}$"):
        otm.solve([0.75, 0.25], [0.25, 0.75], 2, method=f"lp-{solver}")


@pytest.mark.parametrize("exact", [True, False])
def test_a_linear_program_is_solved_in_floats(exact: bool) -> None:
    """Catches fractions that reach the solver, or a target that does not."""
    pytest.importorskip("highspy")
    laws = [[F(x) for x in law] for law in (P, Q)] if exact else [P, Q]
    solution = otm.solve(*laws, 2, method="lp-highs")
    assert type(solution.alpha) is float
    assert not solution.problem.exact
    assert solution.problem.target.tolist() == [float(x) for x in Q]
    assert solution.alpha == pytest.approx(otm.alpha(P, Q, 2), abs=1e-9)


# Other drafts -----------------------------------------------------------------------------------


def other_drafts(law: Any, k: int) -> list[DraftDistribution]:
    """Drafts of every kind from one distribution."""
    n = law.size
    joint = Joint(zip([(i, (i + 1) % n) for i in range(n)], law, strict=True), n)
    return [
        IID(law, k),
        WithoutReplacement(law, k),
        Greedy(law, k),
        Top(law, k),
        HubPairs(law),
        Independent([law, law[::-1]]),
        joint,
    ]


@settings(max_examples=settings.default.max_examples // 2)
@given(pairs(max_tokens=4, exact=True), st.integers(1, 3))
def test_every_kind_of_drafts_has_an_optimal_lossless_plan(pair: Any, k: int) -> None:
    """In fractions: the plan attains α, the cut bounds it, and the output is the target."""
    draft, target = pair
    for drafts in other_drafts(draft, k):
        solution = otm.solve(drafts, target)
        plan = solution.plan
        assert solution.alpha == otm.alpha(drafts, target) == solution.cut.value == plan.acceptance
        assert solution.problem.drafts is plan.drafts is drafts
        assert plan.lossless
        assert exact_output_distribution(plan).tolist() == target.tolist()
        for tokens, _ in drafts.tuples():
            assert plan.conditional(tokens).sum() == 1
        assert exact_acceptance(plan) == solution.alpha


@settings(max_examples=settings.default.max_examples // 4)
@given(pairs(max_tokens=4), st.integers(1, 3))
def test_every_kind_of_drafts_is_solved_in_floats(pair: Any, k: int) -> None:
    draft, target = pair
    for drafts in other_drafts(draft, k):
        solution = otm.solve(drafts, target)
        assert type(solution.alpha) is float
        assert solution.alpha == otm.alpha(drafts, target)
        assert solution.plan.acceptance == pytest.approx(solution.alpha, abs=1e-12)
        away = abs(solution.plan.output_distribution() - solution.problem.target)
        assert away.max() <= 1e-14
        rng = np.random.default_rng(0)
        assert solution.sample(drafts.sample(rng, 20), rng).token.shape == (20,)


def test_the_method_for_other_drafts_is_stated_with_a_reason() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), [0.25, 0.25, 0.5]
    methods = [otm.solve(drafts, q).method for drafts in other_drafts(p, 2)]
    assert methods == ["closed-form"] * 5 + ["max-flow"] * 2
    plans = [type(otm.solve(drafts, q).plan) for drafts in other_drafts(p, 2)]
    own = [GreedyRule, TargetOnly, SpecHub]
    assert plans == [OptimalPlan, TablePlan, *own, TablePlan, TablePlan]
    for drafts in other_drafts(p, 2):
        solution = otm.solve(drafts, q)
        lines = dict(line.split(maxsplit=1) for line in repr(solution).splitlines()[1:])
        assert ("gap" in lines) == solution.problem.iid
        assert str(drafts) in lines["problem"] or solution.problem.iid
        assert lines["method"] == f"{solution.method}: {solution.why}"
        if not solution.problem.iid:
            says = {"closed-form": "prefixes of one order", "max-flow": "maximum flow"}
            assert says[solution.method] in solution.why
        assert "Bounds" in solution._repr_html_() or not solution.problem.iid
    with pytest.raises(InvalidParameterError, match="no known closed form"):
        otm.solve(Independent([p, p[::-1]]), q, method="closed-form")


def test_an_interval_is_a_solution_too() -> None:
    rng = np.random.default_rng(0)
    laws, target = rng.dirichlet(np.ones(60), 3), rng.dirichlet(np.ones(60))
    solution = otm.solve(Independent(laws), target)
    assert isinstance(solution.alpha, otm.Interval)
    assert solution.alpha == otm.alpha(Independent(laws), target)
    assert solution.cut.value == solution.alpha.upper
    assert solution.method == "random-order"
    assert "by a random order" in solution.why
    assert f"{solution.alpha:.12g}" in repr(solution)
    with pytest.raises(ProblemTooLargeError, match=r"than 50,000 / k = 16,666 tuples; `alpha`"):
        _ = solution.plan


def test_drafts_too_many_for_a_table_have_a_rule() -> None:
    p, q = np.random.default_rng(1).dirichlet(np.ones(300), 2)
    solution = otm.solve(WithoutReplacement(p, 2), q)
    with pytest.raises(ProblemTooLargeError, match="RecursiveRejectionWithoutReplacement"):
        _ = solution.plan
    plan = RecursiveRejectionWithoutReplacement(solution.problem)
    assert plan.drafts is solution.problem.drafts
    assert plan.acceptance <= solution.alpha


def test_other_drafts_speak_of_token_ids() -> None:
    """Catches a plan or a cut in positions."""
    ids = [7, 900, 10**12]
    p, q = np.array([0.5, 0.25, 0.25]), [0.125, 0.25, 0.625]
    for plain in other_drafts(p, 2):
        if isinstance(plain, Joint):
            named: Any = Joint([((ids[a], ids[b]), w) for (a, b), w in plain.tuples()], tokens=ids)
        else:
            named = dataclasses.replace(plain, tokens=ids)
        one, other = otm.solve(named, q), otm.solve(plain, q)
        assert one.alpha == other.alpha
        assert one.cut.tokens.tolist() == [ids[i] for i in other.cut.tokens]
        for drafts, _ in plain.tuples():
            uniforms = np.random.default_rng(0).random((50, other.plan.uniforms_per_selection))
            token, index = one.plan.select([[ids[i] for i in drafts]] * 50, uniforms)
            expected = other.plan.select([drafts] * 50, uniforms)
            assert token.tolist() == [ids[i] for i in expected.token]
            assert index.tolist() == expected.index.tolist()
