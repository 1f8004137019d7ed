"""What is not an input: which error, and that its message says what, where and what to do."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import otm
from otm.coupling import PLANS, KSeq, TablePlan
from otm.decoding import SamplingParameters
from otm.drafts import IID, Joint, WithoutReplacement
from otm.errors import (
    InvalidDistributionError,
    InvalidDraftCountError,
    InvalidDraftsError,
    InvalidInputError,
    InvalidParameterError,
    InvalidUniformsError,
    OTMError,
    UnknownMethodError,
)
from otm.gain import common_draft
from otm.kernels import verify_probs
from otm.models import TableModel
from otm.optimum.division_factor import bisection_steps, optimal_division_factor
from otm.optimum.top_logprobs import alpha_interval

F = Fraction
NAN, INF = float("nan"), float("inf")
FINITE = "must be a finite number of at least 0"
FLAT = "give one distribution as a flat, non-empty sequence"
REAL = "allowed are real numbers and fractions"


def nested() -> list[Any]:
    """Return a list that holds itself."""
    law: list[Any] = []
    law.append(law)
    return law


def row(values: list[Any], dtype: str, **options: Any) -> Callable[[], Any]:
    """Return a tensor, made only when the test runs."""

    def make() -> Any:
        torch = pytest.importorskip("torch")
        return torch.tensor(values, dtype=getattr(torch, dtype), **options)

    return make


class Broken:
    """An array-like that fails when it is asked for its entries."""

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        raise LookupError("the shard is gone")


# what it is: the distribution, fragments of the message
LAWS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "NaN": ([0.5, NAN, 0.5], ("nan", "index 1", FINITE)),
    "infinite": ([0.5, 0.5, INF], ("inf", "index 2", FINITE)),
    "minus infinity": ([-INF, 1.0], ("-inf", "index 0", FINITE)),
    "both infinities": ([INF, -INF], ("index 0", FINITE)),
    "NaN among fractions": ([F(1, 2), NAN], ("nan", "index 1", FINITE)),
    "negative": ([0.5, 1.0, -0.5], ("-0.5", "index 2", FINITE)),
    "negative by rounding": ([1.0, -1e-300], ("-1e-300", "index 1", FINITE)),
    "negative fraction": ([F(3, 2), F(-1, 2)], ("-1/2", "index 1", FINITE)),
    "negative integer": ([2, -1], ("-1", "index 1", FINITE)),
    "logits": ([2.0, 1.0, -1.0], ("-1.0", "index 2", "logits, apply a softmax first")),
    "all zero": ([0.0, 0.0], ("zero everywhere", "at least one token")),
    "all zero fractions": ([F(0), F(0)], ("zero everywhere",)),
    "all zero integers": ([0, 0, 0], ("zero everywhere",)),
    "too much": ([0.5, 0.6], ("sums to 1.1", "within 1e-06", "divide it by its sum")),
    "too little": ([0.5, 0.4], ("sums to 0.9", "divide it by its sum")),
    "counts": ([3, 1], ("sums to 4", "divide it by its sum")),
    "too much by a little": ([0.5, 0.500002], ("sums to 1.000002",)),
    "positive logits": ([2.0, 1.0, 0.5], ("sums to 3.5",)),
    "too much in float32": (np.float32([0.5, 0.50390625]), ("sums to 1.00390625", "float32")),
    "too much in float16": (np.array([0.5, 0.52], dtype=np.float16), ("1.02", "within 0.01")),
    "too much in fractions": ([F(1, 2), F(2, 3)], ("sums to 1.16666667", "Fraction")),
    "a long double beyond all floats": (np.longdouble(["1e4000", "0"]), ("index 0", FINITE)),
    "too much for a float": ([1.7e308, 1.7e308], ("sums to inf",)),
    "integers beyond all floats": ([10**400, 1], ("index 0", "at most 1")),
    "integers beyond all floats, and floats": ([0.5, 10**400], ("index 1", "at most 1")),
    "integers of 5,000 digits": ([0, 10**5000], ("index 1", "at most 1")),
    "fractions beyond all floats": ([F(1), F(10**400, 3)], ("index 1", "at most 1")),
    "many integers that sum to more than a float": ([10**308] * 20, ("index 0", "at most 1")),
    "empty": ([], ("shape (0,)", FLAT)),
    "empty array": (np.zeros(0), ("shape (0,)", FLAT)),
    "a number": (0.5, ("of type float;", FLAT)),
    "None": (None, ("of type NoneType;", FLAT)),
    "two axes": ([[0.5, 0.5]], ("shape (1, 2)", FLAT)),
    "a column": (np.full((2, 1), 0.5), ("shape (2, 1)", FLAT)),
    "no rows": (np.zeros((0, 2)), ("shape (0, 2)", FLAT)),
    "ragged": ([[0.5], [0.25, 0.25]], ("not array-like", "flat sequence")),
    "a list of itself": (nested(), ("not array-like", "flat sequence")),
    "a dictionary": ({0: 0.5, 1: 0.5}, ("of type dict;", FLAT)),
    "a set": ({0.25, 0.75}, ("of type set;", FLAT)),
    "a generator": ((x for x in (0.5, 0.5)), ("of type generator;", FLAT)),
    "a string": ("0.5, 0.5", ("of type str;", FLAT)),
    "bytes": (b"ab", ("of type bytes;", FLAT)),
    "strings": (["0.5", "0.5"], ("str", REAL)),
    "dates": (np.array(["2020-01-01"], dtype="datetime64[D]"), ("datetime64", REAL)),
    "complex": ([0.5 + 0j, 0.5], ("complex128", REAL)),
    "booleans": ([True, False], ("bool", REAL)),
    "None inside": ([0.5, None], ("None", "NoneType", "index 1", REAL)),
    "decimals": ([Decimal("0.5"), Decimal("0.5")], ("Decimal", "index 0", REAL)),
    "a string inside": ([F(1, 2), "1/2"], ("'1/2'", "str", "index 1", REAL)),
    "a long string inside": ([F(1), "x" * 10**6], ("'xxx", "index 1", REAL)),
    "a boolean inside": ([F(1), False], ("False", "bool", "index 1", REAL)),
    "a list inside": (np.array([[0.5], F(1)], dtype=object), ("list", "index 0", REAL)),
    "an object": (object(), ("of type object;", FLAT)),
    "an object that fails": (Broken(), ("not array-like", "the shard is gone")),
    "a record": (np.zeros(2, dtype=[("p", float)]), ("void", REAL)),
    "tensor of NaN": (row([NAN, 1.0], "float32"), ("nan", "index 0", FINITE)),
    "bfloat16 tensor of logits": (row([3.0, -2.0], "bfloat16"), ("-2.0", "index 1", "softmax")),
    "tensor of two axes": (row([[0.5, 0.5]], "float32"), ("shape (1, 2)", FLAT)),
    "tensor without axes": (row(1.0, "float32"), ("of type Tensor;", FLAT)),  # type: ignore[arg-type]
    "complex tensor": (row([0.5 + 1j, 0.5], "complex64"), ("complex64", REAL)),
    "boolean tensor": (row([True, False], "bool"), ("bool", REAL)),
    "tensor without data": (row([0.5, 0.5], "float32", device="meta"), ("not array-like",)),
    "sparse tensor": (lambda: row([0.5, 0.5], "float32")().to_sparse(), ("not array-like",)),
    "a distribution of torch": (
        lambda: pytest.importorskip("torch").distributions.Categorical(row([1.0], "float32")()),
        ("of type Categorical;", FLAT),
    ),
}  # fmt: skip


SEVERAL = {"two axes", "a column", "no rows", "tensor of two axes"}
"""Rows of distributions: valid for a problem, rejected where one distribution is expected."""


@pytest.mark.parametrize("case", LAWS)
def test_what_is_not_a_law_is_refused_on_both_sides(case: str) -> None:
    """Catches a foreign exception, a silent answer, and a message without place or remedy."""
    made, fragments = LAWS[case]
    law = made() if callable(made) else made
    size = len(law) if isinstance(law, list | np.ndarray) and len(law) else 2
    good = [F(1, size)] * size
    for arguments, name in (((law, good), "draft"), ((good, law), "target")):
        of_one = (lambda p, q, k: otm.Problem(IID(p, k), q),)
        of_rows = (otm.solve, otm.alpha, otm.Problem)
        for function in of_one if case in SEVERAL else (*of_rows, *of_one):
            with pytest.raises(InvalidDistributionError) as caught:
                function(*arguments, 2)
            message = str(caught.value)
            assert f"the {name} distribution" in message
            assert [x for x in fragments if x not in message] == []
            assert len(message) < 500
            assert isinstance(caught.value, ValueError)  # for callers that do not know OTM


COUNTS: dict[str, tuple[Any, str]] = {
    "zero": (0, "k = 0; at least one draft"),
    "negative": (-3, "k = -3; at least one draft"),
    "hugely negative": (-(10**5000), r"k = -1.00000e\+5000; at least one draft"),
    "beyond 64 bits": (2**63, "k is above 9223372036854775807"),
    "NumPy's zero": (np.int64(0), "k = 0; at least one draft"),
    "True": (True, "k = True of type bool; .* must be an integer"),
    "False": (False, "of type bool"),
    "NumPy's True": (np.True_, "of type bool"),
    "float": (2.0, r"k = 2.0 of type float; .* must be an integer"),
    "NumPy's float": (np.float32(2), "of type float32"),
    "NaN": (NAN, "k = nan of type float"),
    "fraction": (F(2), "of type Fraction"),
    "decimal": (Decimal(2), "of type Decimal"),
    "string": ("2", "k = '2' of type str"),
    "None": (None, "k = None of type NoneType"),
    "complex": (2 + 0j, "of type complex"),
    "dictionary": ({}, "of type dict"),
}


@pytest.mark.parametrize("case", COUNTS)
def test_what_is_not_a_count_of_drafts_is_refused(case: str) -> None:
    k, message = COUNTS[case]
    for function in (otm.solve, otm.alpha, otm.Problem):
        with pytest.raises(InvalidDraftCountError, match=message):
            function([0.5, 0.5], [0.5, 0.5], k)


@pytest.mark.parametrize("k", [[2], [1, 2], np.array([1, 2])])
def test_a_rule_takes_one_k(k: Any) -> None:
    """Catches the k of one problem that is silently the first of several."""
    problem = otm.Problem([0.5, 0.5], [0.5, 0.5], k)
    assert (problem.shape, np.asarray(problem.k).tolist()) == ((len(k),), [*k])
    for rule in PLANS.values():
        with pytest.raises(InvalidInputError, match=r"problem\[i\]"):
            rule(problem)
    assert otm.solve([0.5, 0.5], [0.5, 0.5], k).alpha.tolist() == [1.0] * len(k)


@pytest.mark.parametrize("k", [10**6, 2**31, 2**53])
def test_a_huge_k_is_one(k: int) -> None:
    """Catches k turned into a 32-bit integer, a loop over drafts, and powers that overflow."""
    solution = otm.solve([0.5, 0.25, 0.25], [0.25, 0.0, 0.75], k)
    assert solution.alpha == 1
    assert len(solution.bounds) == 10
    solution.certificate.check()
    assert otm.alpha([1 - 1e-17, 1e-17], [0.0, 1.0], k) == pytest.approx(-np.expm1(-k * 1e-17))


def test_laws_of_different_lengths_are_refused() -> None:
    for function in (otm.solve, otm.alpha, otm.Problem):
        with pytest.raises(InvalidDistributionError) as caught:
            function([0.5, 0.5], [0.5, 0.25, 0.25], 2)
        for fragment in (
            "draft distribution has 2",
            "target distribution 3",
            "give absent tokens probability 0",
        ):
            assert fragment in str(caught.value)


# What is a distribution, though it looks bad.
GOOD: dict[str, tuple[Any, Any]] = {
    "sum off by rounding": ([0.1] * 10, [0.1] * 10),
    "sum off by less than the tolerance": ([0.5, 0.5 + 9e-7], [0.5, 0.5]),
    "float32 softmax": (np.full(3, 1 / 3, dtype=np.float32), [1 / 3] * 3),
    "negative zero": ([-0.0, 1.0], [0.5, 0.5]),
    "subnormal": ([5e-324, 1.0], [1.0, 5e-324]),
    "disjoint": ([1.0, 0.0], [0.0, 1.0]),
    "equal": ([0.3, 0.7], [0.3, 0.7]),
    "one ulp apart": ([0.3, 0.7], [np.nextafter(0.3, 1), np.nextafter(0.7, 0)]),
    "one token": ([1.0], [1]),
}


@pytest.mark.parametrize("case", GOOD)
@pytest.mark.parametrize("k", [1, 2, 64])
def test_awkward_laws_are_taken(case: str, k: int) -> None:
    """Catches 0/0 for equal distributions, and a tolerance below rounding errors."""
    p, q = GOOD[case]
    solution = otm.solve(p, q, k)
    assert 0 <= solution.alpha <= 1
    assert abs(solution.plan.output_distribution() - solution.problem.target).max() < 1e-15
    assert solution.alpha == (0 if case == "disjoint" else pytest.approx(solution.plan.acceptance))
    solution.certificate.check()
    assert len(solution.bounds) == 10
    assert repr(solution)


PROBLEM = otm.Problem([0.5, 0.5, 0.0], [0.25, 0.5, 0.25], 2)
SELECT = otm.solve([0.5, 0.5, 0.0], [0.25, 0.5, 0.25], 2).plan.select
COINS = [0.5] * 4


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: SELECT([0, 1, 1], COINS), InvalidDraftsError, "last axis must hold the k = 2"),
        (lambda: SELECT(0, COINS), InvalidDraftsError, r"shape \(\)"),
        (lambda: SELECT([0, 3], COINS), InvalidDraftsError, r"draft token 3; .* in \[0, 3\)"),
        (lambda: SELECT([-1, 0], COINS), InvalidDraftsError, "draft token -1"),
        (lambda: SELECT([0, 2], COINS), InvalidDraftsError, "draft token 2 has probability 0"),
        (lambda: SELECT([0.0, 1.0], COINS), InvalidDraftsError, "drafts of type float64"),
        (lambda: SELECT(["a", "b"], COINS), InvalidDraftsError, "must be integers"),
        (lambda: SELECT([0, 1], [0.5] * 3), InvalidUniformsError, r"need uniforms of shape \(4,\)"),
        (lambda: SELECT([0, 1], [*COINS[1:], 1.0]), InvalidUniformsError, r"in \[0, 1\)"),
        (lambda: SELECT([0, 1], [*COINS[1:], NAN]), InvalidUniformsError, "NaN"),
        (lambda: SELECT([0, 1], [*COINS[1:], -1e-9]), InvalidUniformsError, r"in \[0, 1\)"),
        (
            lambda: otm.coupling.KSeq(PROBLEM, rho=1),
            InvalidParameterError,
            r"ρ = 1 is not a valid .* at least ρ\* = ",
        ),
        (lambda: otm.coupling.MaximalCoupling(PROBLEM), InvalidParameterError, "use KSeq"),
        (lambda: optimal_division_factor(PROBLEM, 0.0), InvalidParameterError, "must be positive"),
        (lambda: bisection_steps(9, NAN), InvalidParameterError, "delta = nan"),
        (lambda: bisection_steps(9, INF), InvalidParameterError, "delta = inf"),
        (lambda: bisection_steps(9, -1), InvalidParameterError, "delta = -1"),
        (
            lambda: otm.solve([1], [1], 1, method="linear"),
            UnknownMethodError,
            "no method 'linear'; there are auto",
        ),
    ],
)
def test_other_bad_arguments_are_refused(
    call: Callable[[], Any], error: type[OTMError], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e300])
def test_every_positive_width_of_a_bracket_has_its_number_of_steps(delta: float) -> None:
    """Catches (k − 1)/delta that overflows, or has no logarithm."""
    assert 0 <= bisection_steps(9, delta) <= 1100


# Junk -------------------------------------------------------------------------------------------

NUMBERS = (
    st.floats()
    | st.integers()
    | st.fractions()
    | st.sampled_from([0, 1, 0.5, F(1, 2), 10**400, -(10**400), F(10**400), 2**63, -0.0, 5e-324])
)
SCALARS = (
    NUMBERS
    | st.none()
    | st.booleans()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.complex_numbers()
    | st.decimals()
    | st.datetimes()
    | st.sampled_from([object(), Broken(), np.float16(0.5), np.int64(1), np.str_("x"), type, len])
)
ARRAYS = hnp.arrays(
    dtype=hnp.scalar_dtypes() | hnp.array_dtypes(), shape=hnp.array_shapes(max_dims=3, max_side=4)
)
JUNK = st.one_of(
    SCALARS,
    st.lists(NUMBERS, max_size=4),
    st.lists(SCALARS, max_size=4),
    st.lists(st.lists(SCALARS, max_size=2), max_size=3),
    st.lists(NUMBERS, max_size=4).map(lambda x: np.array(x, dtype=object)),
    st.dictionaries(st.integers(), SCALARS, max_size=2),
    st.lists(st.sampled_from([0.5, F(1, 2), 0, 0.0, 1, -0.0, 5e-324]), min_size=1, max_size=4),
    ARRAYS,
)


@given(p=JUNK, q=JUNK, k=SCALARS | st.integers(1, 5) | ARRAYS, method=SCALARS | st.just("auto"))
def test_junk_ends_in_an_error_of_otm_or_in_an_answer(p: Any, q: Any, k: Any, method: Any) -> None:
    """Catches every exception that is not OTM's own, warnings among them."""
    for arguments in ((p, q, k), (p, p, 2), (q, q, k)):
        errors = []
        try:
            solution = otm.solve(*arguments, method=method)
            assert 0 <= solution.alpha <= 1
            solution.certificate.check()
            assert repr(solution)
            assert len(solution.bounds) == 10
        except InvalidInputError as error:
            errors.append(error)
        try:
            values = np.asarray(otm.alpha(*arguments))
            assert ((0 <= values) & (values <= 1)).all()
        except InvalidInputError as error:
            errors.append(error)
        assert all(10 < len(str(error)) < 2_000 for error in errors)


SPARSE = otm.SparseProbs([1, 2], [0.5, 0.5])
OTHER = WithoutReplacement([0.5, 0.5], 2)
ELSEWHERE: dict[str, tuple[Any, type[otm.OTMError], str]] = {
    "a vocabulary of 3.5 tokens": (
        lambda: SPARSE.dense(3.5), InvalidParameterError, r"3\.5; .* an integer",
    ),
    "one sparse distribution": (
        lambda: otm.alpha(SPARSE, [1.0], 2), InvalidDistributionError, "is a SparseProbs",
    ),
    "one of two to align": (
        lambda: KSeq(otm.Problem(SPARSE, [1.0], 2)), InvalidDistributionError, "the other is a",
    ),
    "one of two to compare": (
        lambda: otm.compare([1.0], SPARSE, 2), InvalidDistributionError, "the other is a",
    ),
    "k with a joint distribution": (
        lambda: otm.alpha(IID([1.0], 2), [1.0], 2), InvalidDraftCountError, "leave out k",
    ),
    "k with a joint distribution to solve": (
        lambda: otm.solve(IID([1.0], 2), [1.0], 2), InvalidDraftCountError, "leave out k",
    ),
    "a linear program of other drafts": (
        lambda: otm.solve(OTHER, [0.5, 0.5], method="lp-highs"), InvalidParameterError,
        "supports only i.i.d. drafts",
    ),
    "a certificate of other drafts": (
        lambda: otm.solve(OTHER, [0.5, 0.5]).certificate, InvalidInputError, "only i.i.d. drafts",
    ),
    "bounds of other drafts": (
        lambda: otm.solve(OTHER, [0.5, 0.5]).bounds, InvalidInputError, "only i.i.d. drafts",
    ),
    "a rule for other drafts": (
        lambda: KSeq(otm.Problem(OTHER, [0.5, 0.5])), InvalidInputError,
        r"2 without replacement \(WithoutReplacement\), but this rule needs IID drafts",
    ),
    "other drafts to compare": (
        lambda: otm.compare(OTHER, [0.5, 0.5], None), InvalidInputError, "its own way",
    ),
    "no numbers of drafts to compare": (
        lambda: otm.compare([[0.5, 0.5]], [0.5, 0.5], []), InvalidInputError, "0 numbers of drafts",
    ),
    "rows in fractions": (
        lambda: otm.Problem([[1.0]], [1.0], 2).to_exact(), InvalidInputError, r"problem\[i\]",
    ),
    "another k of other drafts": (
        lambda: otm.Problem(OTHER, [0.5, 0.5]).with_k(3), InvalidInputError, "IID drafts",
    ),
    "a target by its support, beyond the drafts": (
        lambda: otm.alpha(OTHER, SPARSE), InvalidDistributionError, "token 2, which is not one of",
    ),
    "token ids out of order": (
        lambda: IID([0.5, 0.5], 2, tokens=[7, 3]), InvalidDistributionError, "ascending",
    ),
    "too few token ids": (
        lambda: IID([0.5, 0.5], 2, tokens=[7]), InvalidDistributionError, "1 token ids for 2",
    ),
    "a token without an id": (
        lambda: Joint({(3, 9): 1.0}, tokens=[3, 8]), InvalidDraftsError, "draft token 9",
    ),
    "a size beside token ids": (
        lambda: Joint({(3, 8): 1.0}, 2, tokens=[3, 8]), InvalidParameterError, "leave out n",
    ),
    "a ragged joint distribution": (
        lambda: Joint.from_array([[0.5, 0.5], [0.5]]), InvalidDistributionError, "not array-like",
    ),
    "ragged uniforms": (
        lambda: IID([1.0], 2).draw([[0.1, 0.2], [0.3]]), InvalidUniformsError, "not array-like",
    ),
    "a boolean among counts": (
        lambda: otm.alpha([1.0], [1.0], [True, 2]), InvalidDraftCountError, "bool",
    ),
    "a huge division factor": (
        lambda: KSeq(otm.Problem([1.0], [1.0], 2), rho=10**400),
        InvalidParameterError, "finite",
    ),
    "a linear program of rows": (
        lambda: otm.solve([[1.0]], [1.0], 2, method="lp-highs"), InvalidParameterError, "one pair",
    ),
    "a token beyond 64 bits": (
        lambda: alpha_interval({2**63: 0.5}, {0: 0.5}, 1), InvalidDistributionError,
        "tokens are integers from 0",
    ),
    "a vocabulary beyond 64 bits": (
        lambda: alpha_interval({0: 0.5}, {0: 0.5}, 1, vocabulary=10**30),
        InvalidParameterError, "an integer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ELSEWHERE)
def test_what_is_refused_elsewhere(case: str) -> None:
    """Catches foreign exceptions, and answers to what makes no sense."""
    call, error, message = ELSEWHERE[case]
    with pytest.raises(error, match=message):
        call()


MASKED = np.ma.masked_array([0.5, 0.25, 0.25], mask=[0, 1, 0])  # type: ignore[no-untyped-call]
THIRDS = [0.5, 0.25, 0.25]


def masked(values: Any) -> Any:
    """Mask the last entry of a copy."""
    array = np.ma.masked_array(np.array(values))  # type: ignore[no-untyped-call]
    array[(-1,) * array.ndim] = np.ma.masked
    return array


def kernel_arguments(name: str) -> dict[str, Any]:
    """Return arguments of a verification, one of them masked."""
    arguments: dict[str, Any] = {
        "target_probs": np.full((1, 2, 2), 0.5),
        "draft_probs": np.full((1, 1, 2), 0.5),
        "draft_tokens": np.array([[1]]),
        "uniforms": np.full((1, 3), 0.25),
    }
    return arguments | {name: masked(arguments[name])}


# where arrays come in: none may take what a mask hides
ROADS: dict[str, Callable[[], Any]] = {
    "solve": lambda: otm.solve(MASKED, THIRDS, 2),
    "alpha": lambda: otm.alpha(THIRDS, MASKED, 2),
    "alpha of rows": lambda: otm.alpha(masked([THIRDS] * 2), THIRDS, 2),
    "alpha of a list of arrays": lambda: otm.alpha([MASKED, MASKED], THIRDS, 2),
    "alpha, k": lambda: otm.alpha(THIRDS, THIRDS, masked([1, 2])),
    "compare": lambda: otm.compare(MASKED, THIRDS, 2),
    "sparse": lambda: otm.SparseProbs([0, 1, 2], MASKED),
    "sparse, tokens": lambda: otm.SparseProbs(masked([0, 1, 2]), THIRDS),
    "drafts": lambda: WithoutReplacement(MASKED, k=2),
    "joint drafts": lambda: Joint.from_array(masked(np.full((2, 2), 0.25))),
    "select": lambda: SELECT(masked([0, 1]), COINS),
    "select, uniforms": lambda: SELECT([0, 1], masked(COINS)),
    "sampling": lambda: SamplingParameters()(MASKED),
    "sparse sampling": lambda: SamplingParameters(top_k=2).sparse_probs(MASKED),
    "table model": lambda: TableModel({(): MASKED}),
    "mean of rows": lambda: otm.compare([THIRDS] * 2, THIRDS, 2, prompts=masked([0, 1])),
    "parameter": lambda: TablePlan(PROBLEM, masked(np.zeros((3, 2)))),
    "common draft": lambda: common_draft([MASKED, MASKED]),
    **{
        f"kernel, {name}": lambda name=name: verify_probs(**kernel_arguments(name))
        for name in ("target_probs", "draft_probs", "draft_tokens", "uniforms")
    },
}


@pytest.mark.parametrize("road", ROADS)
def test_masked_entries_are_refused(road: str) -> None:
    """Catches an entry that takes the numbers under a mask, as `np.asarray` does."""
    with pytest.raises(InvalidInputError, match=r"masked array with \d+ of \d+ entries masked"):
        ROADS[road]()


def test_a_masked_array_that_masks_nothing_is_an_array() -> None:
    """Catches a refusal of what readers of files return where nothing is missing."""
    whole = np.ma.masked_array(THIRDS)  # type: ignore[no-untyped-call]
    assert otm.alpha(whole, [0.25, 0.25, 0.5], 2) == otm.alpha(THIRDS, [0.25, 0.25, 0.5], 2)
    rows = np.ma.masked_array(np.full((1, 2, 2), 0.5))  # type: ignore[no-untyped-call]
    with pytest.raises(InvalidInputError, match="target is a MaskedArray"):
        verify_probs(rows, None, np.ones((1, 1), dtype=np.int64), np.full((1, 3), 0.5))
