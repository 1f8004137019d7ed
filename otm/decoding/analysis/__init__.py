"""What speculative decoding gains: Leviathan et al., Definition 3.2 to Theorem 3.11, as functions.

One block drafts γ tokens, and the target model judges them in one run.  Each draft is accepted with
the same probability α, independently of the others (the assumption of section 3.1), and the drafts
behind the first that is rejected are lost.  One run of the draft model costs c runs of the target.

Every function takes numbers or arrays, which broadcast, and gives a number or an array.  Where α
and c are fractions, or whole numbers beside a fraction, the result is exact; otherwise it is in
float64.  All results hold at α = 1, where the printed formulas are 0/0.

Two things in the paper are not to be copied.  Corollary 3.6 writes E(min(p, q)) for the mean of
Σ_x min(p(x), q(x)).  And appendix A.5 quotes improvements of 2.5, 3.1, 3.6 and 5 for standard
sampling at c = 0.015, where Theorem 3.8 gives 2.33, 2.94, 3.45 and 4.79 from the printed α and the
best γ: more than the rounding of α explains.

References
----------
.. [leviathan2023] Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
   Decoding", ICML 2023, section 3.
"""
