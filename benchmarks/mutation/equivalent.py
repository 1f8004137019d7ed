"""Mutants that change nothing that a caller can see, each with the reason."""

__all__ = ["EQUIVALENT"]

SPEED = "only the first, approximate sort, which saves time; the second one is exact"

EQUIVALENT: dict[str, str] = {
    "otm.membership.bounds:bounds: one = 0 * factor + 1 → one = 0 / factor + 1": (
        "the guarantee is at least 1 − 1/e, and 0 over it is 0"
    ),
    "otm.certificate:check: "
    "_require(upper >= min(value, Fraction(1)), 'the cut does not prove upper') → "
    "_require(upper >= min(value, 1), 'the cut does not prove upper')": (
        "Fraction(1) is 1 in every comparison"
    ),
    "otm.certificate:accepted_mass: "
    "for mass, above in zip(masses, drafted, strict=True): → "
    "for mass, above in zip(masses, drafted, strict=False):": (
        "both sums run over the same tokens: their lengths are equal"
    ),
    "otm.certificate:accepted_mass: "
    "below_cap.sort(key=lambda i: _shifted(target[i], shift) // draft[i]) → below_cap": SPEED,
    "otm.certificate:accepted_mass: "
    "below_cap.sort(key=lambda i: _shifted(target[i], shift) // draft[i]) → "
    "below_cap.sort(key=lambda i: _shifted(target[i], shift) * draft[i])": SPEED,
    "otm.certificate:_shifted: "
    "return number << bits if bits >= 0 else number >> -bits → "
    "return number << bits if bits >= 0 else number << -bits": SPEED,
    "otm.coupling.optimal:OptimalPlan._winning_probabilities: "
    "side: Literal['left', 'right'] = 'left' if j < i else 'right' → "
    "side: Literal['left', 'right'] = 'left' if j <= i else 'right'": "j = i was left out before",
    "otm.coupling.residual:ResidualPlan._select: "
    "token = np.take_along_axis(drafts, np.maximum(position, 0)[:, None], axis=1)[:, 0] → "
    "token = np.take_along_axis(drafts, np.maximum(position, -1)[:, None], axis=1)[:, 0]": (
        "where no draft is accepted the token is written over by one of the residual"
    ),
    "otm.solve:_axes: first = values[0] if len(values) else None → "
    "first = values[-1] if len(values) else None": (
        "a sequence whose first and last entries differ in kind is refused either way"
    ),
    "otm.coupling.slots:_Side.build: "
    "sums = np.concatenate([np.cumsum(run) for run in np.split(mass, first[1:])]) → "
    "sums = np.concatenate([np.cumsum(run) for run in np.split(mass, first[0:])])": (
        "the first run starts at 0, and a split there gives an empty run more"
    ),
    "otm.coupling.slots:SlotTable.slot_of: "
    "place = np.minimum(found, keys.size - 1) → place = found": (
        "behind the last key the remainder by the number of moves is a place too, and not used"
    ),
    "otm.coupling.slots:SlotTable.slot_of: "
    "place = np.minimum(found, keys.size - 1) → place = np.minimum(found, keys.size - 0)": (
        "as above"
    ),
}
