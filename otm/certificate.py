"""Check a certificate of optimality with the standard library alone, without the solver.

Run this file on a certificate that `Certificate.save` wrote; no package is needed::

    python -I -S otm/certificate.py FILE

The k drafts are i.i.d. with distribution p = draft/Σdraft, and the target is q = target/Σtarget.  A
set H of tokens and an accepted mass v prove bounds on the optimal acceptance probability α_k:

- ``upper``: α_k ≤ q(H) + 1 − p(H)^k, because an accepted token is in H or is a draft outside H.
- ``lower``: α_k ≥ Σv if v ≤ q and v(A) ≤ 1 − (1 − p(A))^k for all sets A of tokens.  If so, some
  selection rule accepts the mass v.  For v = min(q, cap · p), it is enough to check the sets A that
  consist of the tokens with the largest v/p.
- ``plan``: on small instances, the table of a rule, with the mass of every pair (drafts, output).

The check recomputes every number from the inputs in integers, so rounding cannot hide a mistake.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cmp_to_key
from hashlib import sha256
from itertools import accumulate, product
from pathlib import Path
from typing import Any

SCHEMA = "otm-certificate-1"
METHODS = ("closed-form", "lp-highs", "lp-cvxpy")
FIELDS = {
    "schema", "sha256", "inputs_sha256", "draft", "target", "k", "draft_law", "cut", "cap",
    "plan", "lower", "upper", "gap", "interval", "status", "method", "versions",
}  # fmt: skip
# Largest number of draft tuples in the table of a plan.
LARGEST_PLAN = 4096
# Largest number of bits of p(H)^k; without this limit, a large k could take hours to check.
LARGEST_POWER_BITS = 1 << 25
# Extra bits of the fixed-point test that precedes an exact comparison.
GUARD_BITS = 192

BASE_WORK = 400_000_000
WORK_PER_CHARACTER = 500
"""Limit on the work of a check, in products of two 30-bit digits, for each character of JSON.

A check within the limit takes at most about one second for the first million characters and half a
second for each further million.  Without this limit, a short file with long numbers could take
hours to check.
"""

INTEGER = re.compile(r"-?(0x[0-9a-fA-F]+|[0-9]{1,4300})", re.ASCII)
FLOAT = re.compile(r"-?0x[01](?:\.[0-9a-f]{0,13})?p([+-]?[0-9]{1,4})", re.ASCII)

__all__ = ["CertificateRefusedError", "check", "load"]

# Numerator and positive denominator, not reduced, because reducing long numbers is slow.
Ratio = tuple[int, int]


class CertificateRefusedError(Exception):
    """The certificate does not prove its claim."""


class Work:
    """Work budget of a check; each step subtracts its cost before it runs."""

    def __init__(self, characters: float) -> None:
        self.left = float(BASE_WORK + WORK_PER_CHARACTER * characters)
        # A check has one k, so the base alone identifies a power.
        self._powers: dict[int, int] = {}

    def spend(self, amount: float) -> None:
        """Subtract a cost from the budget; raise if the budget is used up."""
        self.left -= amount
        require(self.left >= 0, "the numbers are too long, or k is too large, for this file size")

    def keep(self, bits: int, times: int = 1) -> None:
        """Subtract the cost of storing numbers of `bits` bits: about 1 µs for 100 bytes."""
        self.spend(times * (70 + 40 * (bits // 30)))

    def multiply(self, bits: int, others: int, times: int = 1) -> None:
        """Subtract the cost of products, or of divisions with a short quotient."""
        short, long = sorted((bits // 30 + 1, others // 30 + 1))
        # Python multiplies numbers of 70 digits or more by Karatsuba's method.
        self.spend(times * (70 + long * (short if short < 70 else 6 * short**0.585)))

    def divide(self, bits: int, others: int, times: int = 1) -> None:
        """Subtract the cost of divisions or greatest common divisors."""
        self.spend(times * (100 + (bits // 30 + 1) * (others // 30 + 8)))

    def power(self, base: int, k: int) -> int:
        """Return the k-th power of `base`, cached."""
        if base <= 1:
            return base
        if base not in self._powers:
            bits = k * base.bit_length()
            require(bits <= LARGEST_POWER_BITS, "k is too large to check exactly")
            self.multiply(bits // 2, bits // 2, times=3)
            self.keep(bits)
            self._powers[base] = base**k
        return self._powers[base]


def check(document: dict[str, Any]) -> None:
    """Check a certificate; raise unless it proves its claim.

    Parameters
    ----------
    document : dict
        The decoded JSON of a certificate, from `load`.

    Raises
    ------
    CertificateRefusedError
        If a field is missing or malformed, or a claim is not proved.

    Examples
    --------
    >>> from otm import solve
    >>> document = solve([0.75, 0.25], [0.25, 0.75], 2).certificate.to_document()
    >>> check(document)
    >>> check({**document, "lower": "1/1"})
    Traceback (most recent call last):
    otm.certificate.CertificateRefusedError: the digest of the document is wrong
    """
    work = open_document(document, SCHEMA, FIELDS)
    require(document["inputs_sha256"] == inputs_digest(document), "the inputs' digest is wrong")
    require(document["draft_law"] == "iid", "the draft distribution is not 'iid'")
    require(document["method"] in METHODS, f"the method is not one of {METHODS}")
    k = document["k"]
    require(type(k) is int and k >= 1, "k is not an integer of at least one")
    draft, target = weights(document["draft"], "draft"), weights(document["target"], "target")
    require(len(draft) == len(target), "the distributions differ in length")
    # The weights are summed twice and sorted.
    for probs in (draft, target):
        work.multiply(max(probs).bit_length(), 1, times=4 * len(probs))
    require(k * sum(draft).bit_length() <= LARGEST_POWER_BITS, "k is too large to check exactly")

    lower, upper = check_ends(document, work)
    cap = ratio(document["cap"])
    check_cut(draft, target, k, document["cut"], upper, work=work)
    accepted = {"accepted mass": accepted_mass(draft, target, k, cap, work=work)}
    if document["plan"] is not None:
        accepted["plan's acceptance"] = _check_plan(draft, target, k, document["plan"], work=work)
    for name, mass in accepted.items():
        require(at_most(lower, mass, work), f"the {name} is below the lower bound")


def open_document(document: Any, schema: str, fields: set[str]) -> Work:
    """Check the fields that all schemas share; return the work budget of the check."""
    require(isinstance(document, dict), "not a JSON object")
    # This raises for values that are not JSON, before any comparison with them.
    characters = len(as_json(document))
    require(set(document) == fields, f"the fields do not match the schema {schema}")
    require(document["schema"] == schema, f"the schema is not {schema}")
    require(document["sha256"] == digest(document), "the digest of the document is wrong")
    versions = document["versions"]
    require(isinstance(versions, dict) and all(isinstance(v, str) for v in versions.values()),
             "the versions are not strings")  # fmt: skip
    return Work(characters)


def check_ends(document: dict[str, Any], work: Work) -> tuple[Ratio, Ratio]:
    """Check gap, interval and status; return the bounds `lower` ≤ `upper`."""
    lower, upper, gap = (ratio(document[name]) for name in ("lower", "upper", "gap"))
    longest = max(number.bit_length() for pair in (lower, upper, gap) for number in pair)
    low, high = (
        as_float(value, "interval") for value in as_list(document["interval"], "interval", 2)
    )
    difference = 0
    # Equal bounds need no multiplication, even if the numbers are long.
    if upper != lower:
        work.multiply(longest, longest, times=7)
        difference = upper[0] * lower[1] - lower[0] * upper[1]
    proved = gap[0] == 0
    if difference:
        proved = gap[0] * (upper[1] * lower[1]) == gap[1] * difference > 0
    require(proved, "the gap is not upper − lower ≥ 0")
    around = (low.as_integer_ratio(), lower), (upper, high.as_integer_ratio())
    require(all(at_most(*pair, work) for pair in around), "the bounds are not in the interval")
    status = "bounded" if difference else "exact"
    require(document["status"] == status, f"the status should be '{status}'")
    return lower, upper


def at_most(one: Ratio, other: Ratio, work: Work) -> bool:
    """Whether the first ratio is at most the second."""
    longest = max(map(int.bit_length, one))
    work.multiply(longest, max(map(int.bit_length, other)), times=2)
    return one[0] * other[1] <= other[0] * one[1]


def check_cut(
    draft: list[int], target: list[int], k: int, cut: Any, upper: Ratio, *, work: Work
) -> None:
    """Raise unless the bound q(H) + 1 − p(H)^k of the cut H is at most `upper`."""
    tokens = as_list(cut, "cut")
    valid = all(type(x) is int and 0 <= x < len(draft) for x in tokens)
    require(valid, "the cut has invalid tokens")
    require(len(set(tokens)) == len(tokens), "the cut has a token twice")
    inside, total = sum(draft[x] for x in tokens), sum(draft)
    covered, unit = sum(target[x] for x in tokens), sum(target)
    if upper[0] >= upper[1]:
        return
    # The inequality to prove is 1 − p(H)^k ≤ upper − q(H), and `left` is its right side.
    left = (upper[0] * unit - covered * upper[1], upper[1] * unit)
    bits = GUARD_BITS + total.bit_length() - (total - inside).bit_length()
    work.multiply(bits + left[1].bit_length(), bits + total.bit_length(), times=2)
    hit = at_least_once(total - inside, total, k, bits, up=True, work=work)
    if hit * left[1] <= left[0] << bits:
        return
    power, missed = work.power(total, k), work.power(inside, k)
    work.multiply(power.bit_length(), left[1].bit_length(), times=2)
    require((power - missed) * left[1] <= left[0] * power, "the cut does not prove the upper bound")


def accepted_mass(draft: list[int], target: list[int], k: int, cap: Ratio, *, work: Work) -> Ratio:
    """Check that some rule accepts v = min(q, cap · p), so that Σv ≤ α_k; return the sum Σv."""
    require(cap[0] >= 0, "the cap is negative")
    total, n = sum(draft), len(draft)
    target_unit, draft_unit = total * cap[1], sum(target) * cap[0]
    # All masses are integers divided by this unit.
    unit = target_unit * sum(target)
    longest = max(unit.bit_length(), draft_unit.bit_length())
    work.multiply(max(*draft, *target).bit_length(), longest, times=6 * n)

    # The masses are computed on demand, because storing them all could take much memory.
    def capped(i: int) -> int:
        return min(target[i] * target_unit, draft[i] * draft_unit)

    each = max(draft).bit_length() * max(target).bit_length() / 450 + 200

    def by_ratio(i: int, j: int) -> int:
        work.spend(each)
        return target[i] * draft[j] - target[j] * draft[i]

    # The sets A of largest v/p are the complements of the prefixes in the order of q/p, up to the
    # cap.  Sets of capped tokens need no check: v(A) is linear in p(A), and the bound is concave.
    below_cap = [i for i, p in enumerate(draft) if p and target[i] * target_unit < p * draft_unit]
    # Sorting by rounded ratios first leaves few exact comparisons for the second sort.
    below_cap.sort(key=lambda i: math.log2(target[i] or 0.1**99) - math.log2(draft[i]))
    below_cap.sort(key=cmp_to_key(by_ratio))
    accepted = sum(map(capped, range(n)))
    masses = accumulate((-capped(i) for i in below_cap), initial=accepted)
    drafted = accumulate((-draft[i] for i in below_cap), initial=total)
    message = "the accepted mass on a set of tokens exceeds the bound for every rule"
    for mass, above in zip(masses, drafted, strict=True):
        check_hit((mass, unit), (above, total), k, message, work=work)
    return accepted, unit


def check_hit(accepted: Ratio, drafted: Ratio, k: int, message: str, *, work: Work) -> None:
    """Raise unless accepted ≤ 1 − (1 − drafted)^k: test in fixed point first, then exactly."""
    (mass, unit), (above, total) = accepted, drafted
    leading_zeros = total.bit_length() - above.bit_length()
    leading_ones = unit.bit_length() - abs(unit - mass).bit_length()
    bits = GUARD_BITS + max(leading_zeros, leading_ones)
    work.multiply(bits, unit.bit_length() + total.bit_length())
    if mass << bits <= at_least_once(above, total, k, bits, up=False, work=work) * unit:
        return
    power, missed = work.power(total, k), work.power(total - above, k)
    work.multiply(power.bit_length(), max(mass.bit_length(), unit.bit_length()), times=2)
    require(mass * power <= unit * (power - missed), message)


def at_least_once(part: int, total: int, k: int, bits: int, *, up: bool, work: Work) -> int:
    """Compute 1 − (1 − part/total)^k in fixed point; round every step down, or every step up."""
    work.divide(bits, total.bit_length())
    work.multiply(bits, bits, times=2 * k.bit_length())
    one, last = 1 << bits, (1 << bits) - 1 if up else 0
    hit = once = ((part << bits) + (total - 1 if up else 0)) // total
    for bit in bin(k)[3:]:
        hit = hit * (2 * one - hit) + last >> bits
        if bit == "1":
            hit += (one - hit) * once + last >> bits
    return hit


def _check_plan(draft: list[int], target: list[int], k: int, plan: Any, *, work: Work) -> Ratio:
    """Check that the table of a plan has the marginals p^k and q; return its acceptance."""
    require(isinstance(plan, dict), "the plan is not a JSON object")
    fields = {"denominator", "entries"}
    require(set(plan) == fields, "the fields of the plan are not denominator and entries")
    denominator, total, n = _integer(plan["denominator"], "plan"), sum(draft), len(draft)
    require(denominator > 0, "the plan's denominator is not positive")
    # The first condition avoids computing n^k for a large k.
    small = k < LARGEST_PLAN.bit_length() and n**k <= LARGEST_PLAN
    require(small, f"the plan has more than {LARGEST_PLAN} draft tuples")
    by_drafts = dict.fromkeys(product(range(n), repeat=k), 0)
    by_token, accepted = [0] * n, 0
    entries = as_list(plan["entries"], "plan")
    masses = [_integer(as_list(entry, "plan entry", 3)[2], "plan") for entry in entries]
    unit = sum(target)
    longest = max(map(int.bit_length, (denominator, *masses, unit)))
    work.multiply(longest, 1, times=3 * len(entries))
    for (places, token, _), mass in zip(entries, masses, strict=True):
        drafts = tuple(as_list(places, "plan entry's drafts", k))
        for x in (*drafts, token):
            require(type(x) is int and 0 <= x < n, "the plan has drafts or outputs out of range")
        require(mass >= 0, "the plan has a negative mass")
        by_drafts[drafts] += mass
        by_token[token] += mass
        accepted += mass if token in drafts else 0
    power = work.power(total, k)
    for drafts, mass in by_drafts.items():
        work.multiply(k * max(draft).bit_length(), power.bit_length())
        work.multiply(longest, power.bit_length(), times=2)
        probability = math.prod(draft[x] for x in drafts)
        require(mass * power == probability * denominator, "the plan's draft marginal is not p^k")
    work.multiply(longest, longest, times=2 * n)
    for mass, weight in zip(by_token, target, strict=True):
        require(mass * unit == weight * denominator, "the plan's output distribution is not q")
    return accepted, denominator


def digest(document: dict[str, Any]) -> str:
    """Return the SHA-256 of all fields of a certificate except the field "sha256"."""
    fields = {field: value for field, value in document.items() if field != "sha256"}
    return sha256(as_json(fields).encode()).hexdigest()


def inputs_digest(document: dict[str, Any]) -> str:
    """Return the digest of the problem: both distributions, k and the kind of drafts."""
    return digest({field: document[field] for field in ("draft", "target", "k", "draft_law")})


def as_json(value: Any) -> str:
    """Return canonical JSON; raise for non-finite floats, deep nesting and other types."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise CertificateRefusedError(f"no digest can be computed: {error}") from None


def ratio(text: Any) -> Ratio:
    """Read a fraction "a/b" of decimal or hexadecimal (0x…) integers; make b positive."""
    with suppress(AttributeError, ValueError):
        numerator, denominator = map(_parsed, text.split("/"))
        if denominator:
            return (numerator, denominator) if denominator > 0 else (-numerator, -denominator)
    raise CertificateRefusedError(f"{_shown(text)} is not a fraction a/b")


def weights(values: Any, name: str) -> list[int]:
    """Read weights, integers or hexadecimal floats (0x…p…), as multiples of a common unit."""
    if any(isinstance(value, str) and "p" in value for value in as_list(values, name)):
        ratios = [as_float(value, name).as_integer_ratio() for value in values]
        # All denominators are powers of two, so the largest is a common one.
        unit = max(denominator for _, denominator in ratios)
        probs = [numerator * (unit // denominator) for numerator, denominator in ratios]
    else:
        probs = [_integer(value, name) for value in values]
    require(bool(probs) and min(probs) >= 0 and any(probs), f"the {name} is not a distribution")
    return probs


def _integer(value: Any, name: str) -> int:
    """Read an integer, or a hexadecimal string "0x…" with any number of digits."""
    if type(value) is int:
        return value
    with suppress(ValueError):
        if isinstance(value, str) and value[:2] == "0x":
            return _parsed(value)
    raise CertificateRefusedError(f"{name}: {_shown(value)} is not an integer")


def _parsed(text: str) -> int:
    """Convert a string to an integer; unlike `int`, accept only ASCII digits and a sign."""
    if not INTEGER.fullmatch(text):
        raise ValueError
    return int(text, 0)


def _shown(value: Any) -> str:
    """Return the value as a short one-line text for an error message."""
    return f"{value!r:.60}" if isinstance(value, str) else type(value).__name__


def as_float(value: Any, name: str) -> float:
    """Read a finite hexadecimal float."""
    with suppress(TypeError, ValueError, OverflowError):
        number, parts = float.fromhex(value), FLOAT.fullmatch(value)
        # A float holds all digits of such a number, so it is not rounded.
        if parts and int(parts[1]) >= -1022:
            return number
    raise CertificateRefusedError(f"{name}: {_shown(value)} is not a finite float in hexadecimal")


def as_list(value: Any, name: str, length: int | None = None) -> list[Any]:
    """Return the value if it is a list of the required length, otherwise raise."""
    expected = "a list" if length is None else f"a list of length {length}"
    require(isinstance(value, list) and length in (None, len(value)), f"{name} is not {expected}")
    return value  # type: ignore[no-any-return]


def require(condition: bool, message: str) -> None:
    """Raise with this message if the condition is false."""
    if not condition:
        raise CertificateRefusedError(message)


def load(text: str) -> dict[str, Any]:
    """Decode the JSON of a certificate; raise for duplicate keys and NaN.

    Parameters
    ----------
    text : str
        The content of a file that `Certificate.save` wrote.

    Returns
    -------
    dict
        The document; `check` checks its contents.

    Raises
    ------
    CertificateRefusedError
        If the text is not JSON, or has duplicate keys, NaN or infinity.

    Examples
    --------
    >>> load('{"k": 2, "k": 3}')
    Traceback (most recent call last):
    otm.certificate.CertificateRefusedError: a key occurs twice
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        require(len(dict(pairs)) == len(pairs), "a key occurs twice")
        return dict(pairs)

    def reject(constant: str) -> None:
        raise CertificateRefusedError(f"{constant} is not a JSON number")

    try:
        document: dict[str, Any] = json.loads(text, object_pairs_hook=unique, parse_constant=reject)
    except (ValueError, RecursionError) as error:
        raise CertificateRefusedError(f"not JSON: {error}") from None
    return document


def main(arguments: list[str], check: Callable[[Any], None] = check, value: str = "alpha") -> int:
    """Check the file named on the command line; return 0 (proved), 1 (rejected) or 2 (usage)."""
    if len(arguments) != 1:
        print(f"usage: python -I -S {sys.argv[0]} FILE", file=sys.stderr)
        return 2
    try:
        document = load(Path(arguments[0]).read_text(encoding="utf-8"))
        check(document)
    except (CertificateRefusedError, OSError, UnicodeDecodeError) as error:
        print(f"rejected: {error}", file=sys.stderr)
        return 1
    low, high = map(float.fromhex, document["interval"])
    print(f"proved ({document['status']}): {low!r} <= {value} <= {high!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
