"""Which policy would be fastest on these counts? Two layers, two ranks, four experts; experts of a token: 2."""
import hecate

counts = [[[400, 20, 100, 80], [300, 90, 110, 100]], [[150, 150, 160, 140], [100, 300, 120, 80]]]
found = hecate.simulate(counts, cluster="1x2 nvlink=300G@2us flops=312T mem=40G", policies=["ep", "eplb", "hecate"], top_k=2,
                        model="gpt-moe-s")
for row in sorted(found["policies"], key=lambda row: row["iteration_s"]["median"]):
    print("%-8s %8.3f ms  %.2fx as fast as ep" % (row["name"], 1e3 * row["iteration_s"]["median"], row["speedup_vs_ep"]))
