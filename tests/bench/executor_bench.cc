// What a second thread brings: wall time with one thread over that with two,
// for the GEMMs of the grid and for the experts of a layer, weights packed
// beforehand; and for the FMA loop, which shows what the machine gives.
#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <vector>

#include "contest.h"
#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"
#include "products.h"
#include "program.h"

namespace isoloss::bench {
namespace {

void Speedup(benchmark::State& state,
             const std::function<void(Executor&)>& run) {
  Executor one(1);
  Executor two(2);
  Contest contest = Contest::Wall();
  const size_t with_two = contest.Add([&] { run(two); });
  const size_t with_one = contest.Add([&] { run(one); });
  contest.Run(state);
  state.counters["speedup"] = contest.TimeRatio(with_one, with_two);
}

void BatchSpeedup(benchmark::State& state,
                  const std::vector<kernels::GemmProblem>& batch) {
  Speedup(state,
          [&](Executor& executor) { kernels::GemmBatch(batch, executor); });
}

void FmaSpeedup(benchmark::State& state) {
  Speedup(state, [](Executor& executor) {
    executor.ParallelFor(4, [](size_t) { FmaPeak(); });
  });
}

template <typename Run>
void Register(const std::string& name, int rounds, const Run& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseManualTime()
      ->Iterations(rounds);
}

void RegisterAll(int rounds) {
  Register("threads2_fma/loop", rounds, FmaSpeedup);
  for (const GemmSize& size : GridSizes()) {
    Register("threads2/" + size.name(), rounds, [=](benchmark::State& state) {
      LinearProduct product(size);
      BatchSpeedup(state,
                   {product.Problem(Precision::kBf16, Packing::kBeforehand)});
    });
  }
  for (const Routing& routing : Routings()) {
    for (const Precision precision : {Precision::kBf16, Precision::kMxfp8}) {
      Register(std::string("threads2_experts/") + routing.name + "/" +
                   PrecisionName(precision),
               rounds, [=](benchmark::State& state) {
                 ExpertProducts products(routing);
                 BatchSpeedup(
                     state, products.Problems(precision, Packing::kBeforehand));
               });
    }
  }
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
