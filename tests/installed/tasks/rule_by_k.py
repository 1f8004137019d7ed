from otm.gain import first_step_acceptance, from_models

positions = from_models("small", "target", "texts.txt")
rules = ["optimal", "k-Seq", "otm.coupling:RecursiveRejection"]
means = first_step_acceptance(positions, rules, ks=[1, 2, 4])
print(means)
means.to_csv("means.csv")
means.plot().figure.savefig("means.png")
