"""Audit whether a verifier is lossless.

`lossless` takes a function, such as a rule for one token, a verifier of chains or a decoding loop,
and returns a `Report`.  `process` lets it audit a program in any language.  `recorded` takes a file
of steps that an engine recorded; it runs no code.  `record_generate` records the steps of
transformers.  `audit_server` takes the address of a server.  `compare_greedy` compares two texts
without sampling.  The modules of `otm.audit.adapters` turn verifiers of other libraries into an
`Adapter`.  `otm.audit.diagnose.known_bugs` lists the mistakes that a report can name.
`otm.audit.vectors` has test vectors for verifiers in other languages.

>>> from otm.audit import lossless
>>> def verify(target_probs, draft_probs, draft_tokens, uniforms):
...     return [*draft_tokens, 0]  # accepts every draft
>>> lossless(verify, examples=0).verdict
'not lossless'
"""

from otm.audit.adapters.base import Adapter, Instance
from otm.audit.adapters.batched_loops import loops
from otm.audit.adapters.batches import batch
from otm.audit.adapters.chains import chains
from otm.audit.adapters.functions import chain
from otm.audit.adapters.loops import loop
from otm.audit.adapters.state_and_window import stateful, windowed
from otm.audit.adapters.token_rules import token_rule
from otm.audit.adapters.trees import tree
from otm.audit.evidence import Counterexample
from otm.audit.greedy import GreedyComparison, compare_greedy
from otm.audit.lossless import lossless
from otm.audit.observe.methods import METHODS
from otm.audit.programs.process import process
from otm.audit.report import LOSSLESS, NOT_LOSSLESS, UNDECIDED, Report
from otm.audit.streams.recorded.audit import recorded
from otm.audit.streams.recorded.generate import record_generate
from otm.audit.streams.recorded.report import RecordedReport
from otm.audit.streams.server.audit import audit_server
from otm.audit.streams.server.report import ServerReport
from otm.audit.streams.server.request_parameters import RequestParameters

__all__ = [
    "LOSSLESS",
    "METHODS",
    "NOT_LOSSLESS",
    "UNDECIDED",
    "Adapter",
    "Counterexample",
    "GreedyComparison",
    "Instance",
    "RecordedReport",
    "Report",
    "RequestParameters",
    "ServerReport",
    "audit_server",
    "batch",
    "chain",
    "chains",
    "compare_greedy",
    "loop",
    "loops",
    "lossless",
    "process",
    "record_generate",
    "recorded",
    "stateful",
    "token_rule",
    "tree",
    "windowed",
]
