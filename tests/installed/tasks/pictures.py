import otm

words, draft, target = ["the", "a", "no"], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
plan = otm.solve(draft, target, k=2).plan
print(plan.transport(words))
plan.transport(words).plot().figure.savefig("transport.png")
plan.plot(words).figure.savefig("bars.png")
