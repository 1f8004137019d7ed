"""The public names, pinned: a name that goes, or comes by accident, fails here."""

import dataclasses
import inspect
import re
from collections import Counter
from importlib import import_module
from pkgutil import resolve_name

import pytest

import otm
from otm.coupling import ResidualPlan, TransportPlan
from tests.repo.test_import import MODULES


def table(text: str) -> dict[str, list[str]]:
    """Read the words behind each name that ends with a colon."""
    _, *parts = re.split(r"([\w.]+):", text)
    return dict(zip(parts[::2], map(str.split, parts[1::2]), strict=True))


NAMES = table("""
otm: BlockCertificate BlockSolution Certificate ComparedRule Comparison Interval OTMError Problem
    Solution SparseProbs alpha compare solve solve_block
otm.audit: LOSSLESS METHODS NOT_LOSSLESS UNDECIDED Adapter Counterexample GreedyComparison Instance
    RecordedReport Report RequestParameters ServerReport audit_server batch chain chains
    compare_greedy loop loops lossless process record_generate recorded stateful token_rule tree
    windowed
otm.audit.adapters.flashinfer: chain_speculative_sampling
otm.audit.adapters.huggingface: causal_lm generate logits_processor speculative_sampling
otm.audit.adapters.otm_trees: tree_kernel tree_verifier
otm.audit.adapters.otm_verifiers: kernel spectr_step speculative_loop
otm.audit.adapters.vllm: rejection_sample
otm.audit.diagnose.known_bugs: KNOWN_BUGS SUSPECTED KnownBug
otm.audit.processors: Processor automaton bad_words bias in_order min_length min_p penalties
otm.audit.vectors: path
otm.certificate: CertificateRefusedError check load
otm.coupled: CoupledVerifier Detection ListCoupling WatermarkStatistics WatermarkVerifier
    decode_coupled decode_watermarked detect_watermark watermark_keys watermark_statistics
otm.coupling: PLANS AcceptanceRule GreedyRule GridKSeq GridOptimal ImportanceSelection KSeq
    MaximalCoupling NaiveTargetSampling NonIterativeRejection OptimalPlan PlanBuilder
    RecursiveRejection RecursiveRejectionWithoutReplacement ResidualPlan Selection SpecHub TablePlan
    TargetOnly Transport TransportPlan acceptance_ratio read_only
otm.coupling.lossy: ArgmaxLenientPlan Cactus CascadePlan Distance EnsemblePlan LenientPlan
    RelaxedPlan SyntheticAcceptance TypicalAcceptance distance_to_target
otm.decoding: AcceleratedDrafter Beams BestFirstDrafter Branching DecodingOptions DeviceVerifier
    DraftNode Drafter Drawn DrawnTreeDrafter DynamicTreeDrafter GammaPolicy Generation
    GreedyBlockVerifier Hypothesis LogitsProcessor ModelDrafter NonAutoregressiveDrafter
    PromptLookup Randomness SamplingParameters Seconds Shape StaticTreeDrafter Step StringDrafter
    TargetProbs Verifier autoregressive beam_search entropy_window_verifier huggingface_heuristic
    read_generation_config render_trace sampled_log_probs skip_gram_heads spectr spectr_verifier
    speculative speculative_beam_search stream trace_legend tree_rules verify_branch_and_keep
    verify_chain verify_greedy_paths verify_hierarchical verify_target_only verify_traversal
    verify_walk_and_keep
otm.drafts: IID DraftDistribution Greedy HubPairs Independent Joint Top WithoutReplacement
otm.errors: CertificateError DownloadError EndpointError InvalidDistributionError
    InvalidDraftCountError InvalidDraftsError InvalidInputError InvalidParameterError
    InvalidUniformsError MissingDependencyError NoSuchRowError ProblemTooLargeError ProcessError
    SolverError UnknownMethodError UnsupportedVersionError
otm.gain: Candidate Estimate FastestTree Latency Lenience LoadTable LoadedRate LossySetting
    ModelPair OnlineGamma PairedMeans PlannedTree Recommendation Recording ScoreFiles Settings Setup
    Source Summary TopLogprobs Typical acceptance_from_divergence accepted_along_text
    best_drawn_tree best_gamma best_gamma_policy best_tree block_efficiency clustered_mean
    common_draft contexts_from drawn_hits efficiency_bound expected_tokens factorised_draft
    fastest_tree first_step_acceptance from_files from_models from_top_logprobs lk_divergence
    mean_hit_rate measure_latency memory_accesses_factor operations_factor oracle_speedup
    overlapped_improvement parallel_improvement rank_hits rates_under_load read_latency recommend
    record report single_draft_improvement stream_recordings walltime_improvement
otm.integrations.huggingface: AssistedDecoding patch_generate
otm.integrations.vllm: register
otm.kernels: SelfCheck SparseDrafts Verified VerifiedTree Workspace mass self_checks
    sigmoid_distance verify_chains verify_logits verify_probs verify_sigmoid verify_tree_logits
    verify_tree_probs
otm.models: GPT ConditionedModel GPTConfig HiddenStateModel HuggingFaceModel IntersectionModel
    LanguageModel NGramModel Session Spelling StatelessModel TableModel UniformModel
    check_same_vocabulary decode download encode load save_huggingface
otm.models.gpt.train: PRESETS Preset default_text split train
otm.optimum: Bound BoundedOptimum Cut Optimum Outcome acceptance_at_distance alpha_interval
    alpha_interval_from_logprobs bisection_steps bounds_by_random_order closest_ratio excess
    guarantee lemma_3_by_definition lenient_cap lenient_value minimum_cut most_hits optimal_cap
    optimal_division_factor optimal_value optimum_of prepared_corners replacements spectr_bounds
otm.optimum.solvers: LinearProgram LinearProgramSize LinearProgramSolution alpha_by_max_flow
    packing_form size_of solve_cvxpy solve_highs solve_sinkhorn
otm.rules: RULES Rule named names
otm.testing: BUDGET INSTANCES Budget Control Path SymbolicUniform Verdict assert_lossless
    continued_distribution exact_acceptance exact_distribution exact_distribution_of_select
    exact_output_distribution instance output_distribution_of paths sequence_distribution
otm.testing.strategies: BLOCK_KINDS DISTRIBUTION_KINDS PAIR_KINDS Block blocks distributions drafts
    pairs problems uniforms
""")
"""The public names of each module."""

ATTRIBUTES = table("""
otm.Solution: alpha bounds certificate cut method plan problem sample select why
otm.BlockSolution: accepted bound certificate method nodes plan why
otm.BlockCertificate: check document gap load lower save upper
otm.Certificate: build cap check cut gap load lower method problem save to_document upper
otm.Problem: bins by_ratio draft drafts drafts_as exact ids iid k n shape target to_exact to_floats
    tokens with_k
otm.drafts.DraftDistribution: check distribution_of_last distribution_of_one draftable draw exact
    ids miss_probability n position_tuples positions sample to_exact to_floats tokens tuple_count
    tuples uniforms_per_draw
otm.coupling.TransportPlan: acceptance acceptance_bounds conditional drafts lossless
    output_distribution problem sample select transport uniforms_per_selection
otm.coupling.ResidualPlan: acceptance_by_test accepted_mass plot residual
otm.coupling.Selection: index token
otm.Interval: exact gap lower upper
otm.SparseProbs: dense draw from_dense from_support of probabilities tokens
""")
"""The public attributes of some classes; a residual plan has those of a plan too."""

OF_RULES = table("""
ArgmaxLenientPlan: accept_probability lenience  Cactus: accept_probability delta raised_target
CascadePlan: relaxed_target slack version  EnsemblePlan: relaxed_target weight
GreedyRule: accept_probability  GridKSeq: accept_probability
ImportanceSelection: accept_probability selected_distribution weights  KSeq: rho accept_probability
LenientPlan: accept_probability slot_distribution slots target_mass winner_distribution
    accepted_ratio lenience residual_of
GridOptimal: accept_probability steps winner_distribution  ListCoupling: agreeing couple lower_bound
MaximalCoupling: rho accept_probability  NonIterativeRejection: rho accept_probability
OptimalPlan: accept_probability slot_distribution slots target_mass winner_distribution
RecursiveRejection: rounds  RecursiveRejectionWithoutReplacement: acceptance_given
RelaxedPlan: relaxed_target  SyntheticAcceptance: accept_probability rate
TablePlan: accept from_linear_program from_max_flow from_rule
TypicalAcceptance: delta epsilon otherwise threshold
""")
"""What rules have beside the protocol: their parameters and tables."""

SIGNATURES = [
    "solve(p, q, k, *, method, memory_limit)",
    "alpha(p, q, k)",
    "compare(p, q, k, *, rules, prompts, level, max_seconds, progress)",
    "solve_block(draft, target, k, length, *, context, top, tolerance, rounds, node_limit)",
    "Problem(draft, target, k)",
]


@pytest.mark.parametrize("module", NAMES)
def test_the_public_names_of_a_module(module: str) -> None:
    found = import_module(module)
    assert found.__all__ == NAMES[module]
    assert found.__all__ == sorted(found.__all__, key=lambda x: (not x.isupper(), x[0] > "Z", x))
    assert all(hasattr(found, name) for name in found.__all__)


def test_nothing_else_is_public() -> None:
    """Bug: a module that calls names public which nobody pinned, or a name with two paths."""
    assert {x for x, text in MODULES.items() if re.search(r"(?m)^__all__\b", text)} == {*NAMES}
    paths = Counter(name for names in NAMES.values() for name in names)
    # the stand-alone checker reads a file's text, and models load weights
    assert {name for name, count in paths.items() if count > 1} == {"load"}


def attributes(cls: type) -> set[str]:
    """Names of a class that are public, fields without a default among them."""
    fields = [x.name for x in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    return {name for name in (*dir(cls), *fields) if name[0] != "_"}


PROTOCOL = ATTRIBUTES["otm.coupling.TransportPlan"]
RESIDUAL = PROTOCOL + ATTRIBUTES.pop("otm.coupling.ResidualPlan")


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_the_public_attributes_of_a_class(name: str) -> None:
    assert attributes(resolve_name(name)) == set(ATTRIBUTES[name])


@pytest.mark.parametrize("signature", SIGNATURES)
def test_the_names_of_arguments(signature: str) -> None:
    name, empty = signature.partition("(")[0], inspect.Parameter.empty
    parameters = inspect.signature(getattr(otm, name)).parameters.values()
    bare = [parameter.replace(annotation=empty, default=empty) for parameter in parameters]
    assert f"{name}{inspect.Signature(bare)}" == signature


def test_every_selection_rule_has_the_protocol_and_no_more_than_its_parameters() -> None:
    """Catches a method on one rule that callers of the protocol would not find on the others."""
    packages = ("otm.coupling", "otm.coupling.lossy", "otm.coupled")
    classes = [getattr(import_module(x), name) for x in packages for name in NAMES[x]]
    rules = [x for x in classes if inspect.isclass(x) and issubclass(x, TransportPlan)]
    assert len(rules) >= 17
    for cls in rules:
        protocol = RESIDUAL if issubclass(cls, ResidualPlan) else PROTOCOL
        own = OF_RULES.get(cls.__name__, [])
        assert sorted(attributes(cls)) == sorted([*protocol, *own]), cls
