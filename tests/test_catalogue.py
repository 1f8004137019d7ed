"""What goes wrong in verifiers, row by row, and the tests that hold each row.

Each row is a case that some project has met; it stands here with what must happen.  What no other
file shows is at the end.
"""

from __future__ import annotations

import ast
import io
import zipfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from otm._core.files.headers import open_arrays
from otm._core.probs.sampling import InverseCdf
from otm.coupling import PLANS
from otm.coupling.build import PlanBuilder
from otm.problem import Problem

TESTS = Path(__file__).resolve().parent
CODE = TESTS.parent / "otm"

PROTOCOL = "coupling/test_plan_protocol.py"
LOOP = "decoding/test_loop.py"
LOGITS = "decoding/test_sampling_parameters.py"
REFERENCE = "kernels/chain/test_torch.py"
CHAIN = "kernels/chain/test_triton.py"
GPU = "kernels/compiled/test_on_gpu.py"
HERE = "test_catalogue.py"

CATALOGUE: dict[str, dict[str, list[str]]] = {
    "inputs": {
        "a sum that is off by rounding is normalised, by more an error that states it": [
            "core/probs/test_distribution.py::test_a_sum_within_the_tolerance_of_the_type_is_normalised",
            "core/probs/test_distribution.py::test_what_is_not_a_law_is_refused",
        ],
        "NaN, infinite or negative: an error that names the index": [
            "core/probs/test_distribution.py::test_what_is_not_a_law_is_refused",
            "test_bad_input.py::test_what_is_not_a_law_is_refused_on_both_sides",
        ],
        "a row of zeros: an error, never uniform": [
            "core/probs/test_distribution.py::test_what_is_not_a_law_is_refused",
            "core/probs/test_distribution.py::test_rows_that_are_no_laws_are_named",
        ],
        "different lengths: an error": [
            "core/probs/test_distribution.py::test_laws_of_different_lengths_are_refused",
            "test_bad_input.py::test_laws_of_different_lengths_are_refused",
        ],
        "k that is 0, a boolean or a float: an error": [
            "test_problem.py::test_what_is_not_a_number_of_drafts_is_refused",
            "test_bad_input.py::test_what_is_not_a_count_of_drafts_is_refused",
        ],
        "one token: alpha is 1": [
            "optimum/test_cut.py::test_one_token_is_always_accepted",
            "optimum/test_many_rows.py::test_one_token_is_always_accepted",
        ],
        "one draft: alpha is 1 - TV": [
            "optimum/test_cut.py::test_one_draft_is_accepted_but_for_the_distance",
            "test_solve.py::test_one_draft_gives_one_minus_total_variation",
        ],
        "swapped arguments: an asymmetric case fails": [
            "optimum/test_cut.py::test_swapped_arguments_fail",
            "test_solve.py::test_the_first_argument_is_the_draft",
        ],
        "strided or expanded tensors: as contiguous": [
            "optimum/test_torch.py::test_strided_and_expanded_tensors_are_as_contiguous_ones",
            f"{REFERENCE}::test_strides_and_integer_types_do_not_matter",
        ],
        "permuted tokens: the value stays, the plan is permuted": [
            "optimum/test_cut.py::test_permuted_tokens_leave_the_value",
            f"{PROTOCOL}::test_permuted_tokens_permute_the_plan",
        ],
        "another draft never lowers alpha": [
            "optimum/test_cut.py::test_another_draft_never_lowers_alpha",
        ],
        "alpha is at most sum min(q, 1 - (1 - p)^k), k-Seq at least (1 - (1 - 1/k)^k) alpha": [
            "optimum/test_cut.py::test_the_simple_upper_bound",
            "coupling/test_k_seq.py::test_theorem_1_holds_against_the_optimum",
        ],
    },
    "floats": {
        "softmax in half precision: raised to float64, then normalised": [
            "core/probs/test_distribution.py::test_softmax_rows_of_every_type_are_laws",
            f"{LOGITS}::test_types_below_float64_are_raised_before_the_softmax",
            f"{REFERENCE}::test_half_precision_is_widened",
        ],
        "zeros of float16: nothing is accepted for that": [
            "core/probs/test_distribution.py::test_a_half_precision_row_keeps_its_zeros",
            f"{PROTOCOL}::test_a_draft_without_target_probability_is_always_rejected",
        ],
        "sampled in a coarse type and verified in a fine one: biased, and a test shows it": [
            f"{PROTOCOL}::test_drafts_of_another_law_bias_the_output",
            "audit/diagnose/test_known_bugs.py::test_every_bug_changes_the_law",
        ],
        "temperature 1e-8, logits of 1e38: finite": [
            f"{LOGITS}::test_extreme_temperatures_and_logits",
            f"{REFERENCE}::test_cold_temperatures_and_huge_logits",
        ],
        "a row of -inf or NaN: an error; no kernel leaves the vocabulary": [
            f"{LOGITS}::test_logits_that_make_no_law",
            f"{REFERENCE}::test_no_garbage_gives_a_token_outside_the_vocabulary",
            f"{CHAIN}::test_no_garbage_gives_a_token_outside_the_vocabulary",
        ],
        "top-p next to one, a sum in float32 below it: no index out of range": [
            f"{LOGITS}::test_p_next_to_one_keeps_the_law",
        ],
        "ties at the edge of top-k: exactly k tokens": [
            f"{LOGITS}::test_ties_go_to_the_lowest_ids",
            f"{LOGITS}::test_logits_are_ranked_although_their_weights_tie",
        ],
    },
    "degenerate distributions": {
        "equal bit for bit: alpha is 1, the empty residual is never divided": [
            "optimum/test_cut.py::test_equal_and_disjoint_laws",
            f"{PROTOCOL}::test_equal_laws_accept_a_draft",
            f"{REFERENCE}::test_an_empty_residual_gives_a_token_of_the_target",
        ],
        "one ulp apart: no 0/0, a token of the support": [
            f"{HERE}::test_laws_one_ulp_apart_give_a_token_of_the_support",
        ],
        "drafted, and impossible for the target: always rejected": [
            f"{PROTOCOL}::test_a_draft_without_target_probability_is_always_rejected",
        ],
        "an impossible draft: an error, except in kernels, where it is documented": [
            "coupling/test_plan_input.py::test_drafts_that_cannot_be_are_refused",
            "drafts/test_base.py::test_impossible_tuples_are_refused_and_no_others",
            f"{REFERENCE}::test_a_draft_law_without_mass_takes_nothing_from_the_target",
        ],
        "greedy or top-k drafts reported as their softmax: a test fails": [
            f"{PROTOCOL}::test_drafts_of_another_law_bias_the_output",
            "audit/diagnose/test_known_bugs.py::test_every_bug_changes_the_law",
        ],
    },
    "sampling": {
        "u = 0 where the target has no mass: rejected": [
            f"{PROTOCOL}::test_a_draft_without_target_probability_is_always_rejected",
            "coupling/test_mutants.py::test_a_wrong_rule_is_found",
        ],
        "a uniform on an edge: the next token of positive mass": [
            "core/probs/test_sampling.py::test_an_edge_belongs_to_the_next_token_of_positive_weight",
            f"{REFERENCE}::test_edges_belong_to_the_next_token_of_positive_weight",
        ],
        "a token of weight zero is never drawn": [
            "core/probs/test_sampling.py::test_a_token_of_weight_zero_is_never_drawn",
            "core/probs/test_sampling.py::test_no_row_draws_a_token_of_weight_zero",
        ],
        "vocabularies beyond 2^24, where torch.multinomial ends": [
            f"{HERE}::test_a_vocabulary_beyond_2_to_the_24_is_drawn_from",
            f"{HERE}::test_no_token_is_drawn_by_functions_that_fill_up_missing_mass",
        ],
        "uniforms of 24 bits are too coarse for a large vocabulary: 53 are taken": [
            "core/probs/test_sampling.py::test_uniforms_of_53_bits_resolve_a_large_vocabulary",
        ],
        "draft, coin and residual from one stream: must fail": [
            "coupling/test_mutants.py::test_a_wrong_rule_is_found",
            "audit/diagnose/test_known_bugs.py::test_the_audit_finds_every_bug_and_names_it",
        ],
        "NumPy's multinomial puts missing mass on the last category: not relied on": [
            f"{HERE}::test_no_token_is_drawn_by_functions_that_fill_up_missing_mass",
        ],
    },
    "linear program": {
        "entries of -1e-7 are never exposed": [
            "optimum/test_linear_program.py::test_what_a_solver_leaves_is_cleaned",
        ],
        "a status other than optimal: a typed error, no silent fallback": [
            "optimum/test_linear_program.py::test_a_solver_that_does_not_finish_is_an_error",
        ],
        "degenerate optima: values and certificates are compared, not plans": [
            "optimum/test_linear_program.py::test_highs_finds_the_closed_form",
            "optimum/test_linear_program.py::test_any_prices_give_a_valid_cut",
        ],
        "float capacities in flow codes: exact integers": [
            "optimum/test_max_flow.py::test_floats_stand_for_their_fractions",
        ],
        "50,000 tokens by a linear program: an error that names the size, before any allocation": [
            "optimum/test_linear_program.py::test_a_large_vocabulary_is_refused_at_once",
        ],
    },
    "loops": {
        "temperature or top-p on one side only: a test fails": [
            "audit/diagnose/test_known_bugs.py::test_every_bug_changes_the_law",
            f"{LOOP}::test_the_draft_may_be_sampled_otherwise_than_the_target",
        ],
        "all accepted: one token more from the target, and the cache is right": [
            f"{LOOP}::test_equal_models_accept_everything",
            "decoding/test_reading.py::test_laws_are_the_model_s_and_nothing_is_read_twice",
        ],
        "an end or the limit within a block: exactly the truncated distribution": [
            f"{LOOP}::test_every_ending_cuts_where_it_should",
            "decoding/test_lossless.py::test_whole_sequences_have_the_law_of_the_target",
        ],
        "block verification: the joint distribution of several tokens": [
            "kernels/block/test_numpy.py::test_the_joint_law_is_the_target_s_and_no_shorter",
            "decoding/test_lossless.py::test_traversal_of_chains_and_prefix_trees",
        ],
        "no drafts, and chains of different lengths": [
            f"{LOOP}::test_without_drafts_every_step_is_one_token",
            f"{LOOP}::test_a_sequence_does_not_depend_on_its_batch",
            f"{CHAIN}::test_no_drafts_and_no_chains",
        ],
        "greedy decoding, on table models": [
            f"{LOOP}::test_the_draft_may_be_sampled_otherwise_than_the_target",
        ],
        "lenience off: lossless; on: its exact distance is reported": [
            "coupling/lossy/test_lenient.py::test_no_lenience_is_lossless",
            "coupling/lossy/test_lenient.py::test_distances",
        ],
        "a million tokens: the right distribution, and no memory is kept": [
            "decoding/test_soak.py::test_long_decoding_has_the_law_of_the_target",
            "decoding/test_soak.py::test_long_decoding_keeps_no_memory",
        ],
    },
    "kernels": {
        "blocks and one more or less, three padded to four, a last tile of zeros": [
            f"{CHAIN}::test_probabilities",
            f"{GPU}::test_every_decision_is_the_reference_s",
        ],
        "a block of nothing but -inf: no NaN": [f"{CHAIN}::test_empty_blocks_and_edges"],
        "a draft vocabulary smaller than the target's": [
            f"{REFERENCE}::test_a_small_draft_vocabulary_is_one_with_zeros",
            f"{CHAIN}::test_a_draft_beyond_the_draft_model_s_vocabulary_has_probability_zero",
        ],
        "different lengths, padded with -1: nothing is accepted there or behind": [
            f"{REFERENCE}::test_what_stands_beyond_the_end_of_a_chain_does_not_matter",
            f"{CHAIN}::test_a_chain_sees_neither_the_batch_nor_what_lies_beyond_its_end",
        ],
        "several chains are kept separate": [
            f"{REFERENCE}::test_a_chain_does_not_see_the_batch",
            f"{GPU}::test_a_chain_does_not_see_the_batch",
        ],
        "a greedy row beside sampled ones": [
            f"{REFERENCE}::test_a_greedy_row_beside_sampled_ones",
            f"{CHAIN}::test_logits",
        ],
        "a graph replays with other inputs": [f"{GPU}::test_a_graph_replays_with_changed_inputs"],
        "rows beyond 2^31 entries": [f"{GPU}::test_rows_beyond_two_to_the_31_entries"],
        "bfloat16, under the interpreter too": [f"{CHAIN}::test_logits"],
    },
    "files and command line": {
        "pickles are rejected": [
            "core/test_files.py::test_hostile_files_are_refused_in_one_line",
            "cli/test_distributions.py::test_pickles_in_archives_are_refused",
            "models/test_gpt_files.py::test_files_that_are_no_models_are_refused_in_one_line",
        ],
        "JSON with NaN or a key twice: one line, no traceback": [
            "core/test_files.py::test_json_that_readers_take_in_different_ways_is_refused",
            "cli/test_distributions.py::test_a_bad_file_is_refused_in_one_line",
        ],
        "names in archives that lead elsewhere write nothing": [
            f"{HERE}::test_names_in_an_archive_lead_nowhere",
        ],
        "certificates with any changed field are rejected": [
            "test_certificate.py::test_a_forgery_is_refused",
            "test_certificate.py::test_no_edit_of_a_document_crashes_the_checker_or_proves_what_is_false",
        ],
        "what damage a file has is said in an error of this package": [
            "core/test_files.py::test_whatever_is_damaged_nothing_foreign_is_raised",
        ],
    },
}
ROWS = [(part, row) for part, rows in CATALOGUE.items() for row in rows]


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Names of the functions of a file, which is read and not run."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def is_there(test: str) -> bool:
    """Whether FILE::NAME is a test below `tests/`."""
    file, _, name = test.partition("::")
    path = TESTS / file
    return name.startswith("test_") and path.is_file() and name in functions_of(path)


@pytest.mark.parametrize(("part", "row"), ROWS, ids=[f"{part}: {row}" for part, row in ROWS])
def test_every_row_has_tests(part: str, row: str) -> None:
    """Bug: a case of the catalogue whose test was renamed, moved or deleted."""
    tests = CATALOGUE[part][row]
    assert tests
    assert [test for test in tests if not is_there(test)] == []


def test_the_check_can_fail() -> None:
    assert is_there("test_catalogue.py::test_every_row_has_tests")
    assert not is_there("test_catalogue.py::test_nothing")
    assert not is_there("test_catalogue.py::is_there")
    assert not is_there("test_none.py::test_every_row_has_tests")


# What no other file shows


@pytest.mark.parametrize("up", [0, 1])
@pytest.mark.parametrize("name", PLANS)
def test_laws_one_ulp_apart_give_a_token_of_the_support(name: str, up: int) -> None:
    """Bug: a residual of one ulp, or none at all, that is divided by its sum."""
    rule: PlanBuilder = PLANS[name]
    p = np.array([0.25, 0.5, 0.25, 0.0])
    q = p.copy()
    q[up], q[2] = np.nextafter(q[up], 1), np.nextafter(q[2], 0)
    for draft, target in [(p, q), (q, p)]:
        plan = rule(Problem(draft, target, 2))
        assert np.isfinite(float(plan.acceptance))
        for drafts, _ in plan.drafts.tuples():
            assert np.isfinite(plan.conditional(drafts)).all()
            for u in (0.0, 0.5, 1 - 2.0**-53):
                token, _ = plan.select(drafts, [u] * plan.uniforms_per_selection)
                assert target[token] > 0


def test_a_vocabulary_beyond_2_to_the_24_is_drawn_from() -> None:
    """Bug: torch.multinomial, which takes no more categories than that."""
    size = 2**24 + 3
    weights = np.zeros(size)
    weights[[5, -2]] = 0.25, 0.75
    cdf = InverseCdf.from_weights(weights)
    assert cdf.locate(np.array([0.0, 0.24, 0.25, 0.99])).tolist() == [5, 5, size - 2, size - 2]


def test_no_token_is_drawn_by_functions_that_fill_up_missing_mass() -> None:
    """Bug: `multinomial` of NumPy or torch, or `choice` by probabilities, in the package.

    The audit's own Monte Carlo splits counts by exact fractions, which NumPy only rounds; where a
    verifier draws for itself, the libraries' functions only check the arguments.  The cases of
    self-checks draw probabilities as counts, not tokens.
    """
    calls = {
        (path.relative_to(CODE.parent).as_posix(), node.func.attr)
        for path in (*CODE.rglob("*.py"), *(CODE.parent / "figures").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in {"multinomial", "choice", "choices"}
    }
    refusing = {
        ("otm/audit/intercept/generators.py", name) for name in ("choice", "choices", "multinomial")
    }
    counting = {
        ("otm/audit/observe/monte_carlo.py", "multinomial"),
        ("otm/kernels/self_check/chain_cases.py", "multinomial"),
    }
    assert calls == counting | refusing


def test_names_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    """Bug: an archive that is unpacked, and writes beside the folder that it is in."""
    folder = tmp_path / "folder"
    folder.mkdir()
    array = io.BytesIO()
    np.save(array, np.eye(2))
    with zipfile.ZipFile(folder / "x.npz", "w") as archive:
        for name in ("../up.npy", "/root.npy", "a/../../b.npy"):
            archive.writestr(name, array.getvalue())
    for rows in open_arrays(folder / "x.npz").values():
        assert rows.read(0, 2).tolist() == [[1, 0], [0, 1]]
    assert [path.name for path in tmp_path.rglob("*")] == ["folder", "x.npz"]
