// The products of a layer's experts, whose token counts are uneven, as one
// grouped GEMM on one thread.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "contest.h"
#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"
#include "products.h"
#include "program.h"

namespace isoloss::bench {
namespace {

void Experts(benchmark::State& state, const Routing& routing) {
  ExpertProducts products(routing);
  Executor executor(1);
  Contest contest = Contest::OneThread();
  std::vector<std::string> names;
  for (const Packing packing : {Packing::kInCall, Packing::kBeforehand}) {
    for (const Precision precision : {Precision::kBf16, Precision::kMxfp8}) {
      names.push_back(std::string("of_peak_") + PrecisionName(precision) +
                      (packing == Packing::kInCall ? "" : "_prepacked"));
      contest.Add([&executor, batch = products.Problems(precision, packing)] {
        kernels::GemmBatch(batch, executor);
      });
    }
  }
  contest.Run(state);
  for (size_t i = 0; i < names.size(); ++i) {
    state.counters[names[i]] = contest.OfPeak(i, products.flops());
  }
}

void RegisterAll(int rounds) {
  for (const Routing& routing : Routings()) {
    benchmark::RegisterBenchmark(
        (std::string("experts/") + routing.name).c_str(),
        [=](benchmark::State& state) { Experts(state, routing); })
        ->UseManualTime()
        ->Iterations(rounds);
  }
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
