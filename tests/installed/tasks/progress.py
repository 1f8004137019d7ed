from otm.gain import Latency, from_models, report

positions = from_models("small", "target", "texts.txt")
report(positions, "report", latency=Latency.constant(0.1))  # a line on a terminal, none in a pipe
