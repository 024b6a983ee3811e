// Small models, of which ladders and maps train hundreds: how much of a step is
// not in products, and whether runs side by side disturb each other.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string>
#include <thread>
#include <vector>

#include "contest.h"
#include "gemm_clock.h"
#include "measure.h"
#include "program.h"
#include "training_step.h"

namespace isoloss::bench {
namespace {

StepSetup Nano(const std::string& recipe) {
  return {.preset = "dsv3-nano", .recipe = recipe};
}

/// Of a step on one thread, the products' packing counted as theirs.
void OutsideGemms(benchmark::State& state, const std::string& recipe) {
  constexpr int kSteps = 3;
  TrainingStep step(Nano(recipe));
  step.Run();
  std::vector<double> shares;
  for ([[maybe_unused]] auto _ : state) {
    const double start = WallSeconds();
    const double in_gemms_before = SecondsInGemms();
    for (int i = 0; i < kSteps; ++i) step.Run();
    const double all = WallSeconds() - start;
    shares.push_back(1 - (SecondsInGemms() - in_gemms_before) / all);
    state.SetIterationTime(all / kSteps);
  }
  state.counters["share"] = Median(shares);
}

/// Two runs at once on a thread each, beside one of them alone.
void SideBySide(benchmark::State& state, const std::string& recipe) {
  constexpr int kSteps = 5;
  TrainingStep first(Nano(recipe));
  TrainingStep second(Nano(recipe));
  const auto run = [](TrainingStep& step) {
    for (int i = 0; i < kSteps; ++i) step.Run();
  };
  Contest contest = Contest::Wall();
  const size_t together = contest.Add([&] {
    std::thread other([&] { run(second); });
    run(first);
    other.join();
  });
  const size_t alone = contest.Add([&] { run(first); });
  contest.Run(state);
  state.counters["of_sum"] = contest.TimeRatio(alone, together);
}

void RegisterAll(int rounds) {
  const auto add = [&](const std::string& name, const auto& run) {
    for (const std::string recipe : {"bf16", "mxfp8_rceil"}) {
      benchmark::RegisterBenchmark(
          fmt::format("small_model/{}/{}", name, recipe).c_str(),
          [=](benchmark::State& state) { run(state, recipe); })
          ->UseManualTime()
          ->Iterations(rounds)
          ->Unit(benchmark::kMillisecond);
    }
  };
  add("outside_gemms", OutsideGemms);
  add("side_by_side", SideBySide);
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
