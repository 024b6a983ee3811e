// The training step of dsv3-small: recipes side by side on one thread, the
// second thread, four times the tokens.
#include <benchmark/benchmark.h>

#include <deque>
#include <string>

#include "contest.h"
#include "program.h"
#include "training_step.h"

namespace isoloss::bench {
namespace {

constexpr size_t kSequences = 8;

void Recipes(benchmark::State& state) {
  std::deque<TrainingStep> steps;
  Contest contest = Contest::OneThread();
  const auto add = [&](const char* recipe) {
    TrainingStep& step = steps.emplace_back(recipe, kSequences, 1);
    return contest.Add([&step] { step.Run(); });
  };
  const size_t bf16 = add("bf16");
  const size_t mxfp8 = add("mxfp8_rceil");
  const size_t fp32 = add("fp32");
  contest.Run(state);

  const auto report = [&](const std::string& name, size_t number) {
    state.counters["of_peak_" + name] =
        contest.OfPeak(number, steps[number].flops());
    state.counters["ms_" + name] = 1e3 * contest.Seconds(number);
  };
  report("bf16", bf16);
  report("mxfp8", mxfp8);
  report("fp32", fp32);
  state.counters["mxfp8_over_bf16"] = contest.TimeRatio(mxfp8, bf16);
  state.counters["gflop"] = 1e-9 * steps.front().flops();
  state.counters["peak_gflop_per_s"] = 1e-9 * contest.Peak(bf16);
}

void TwoThreads(benchmark::State& state, const std::string& recipe) {
  TrainingStep two(recipe, kSequences, 2);
  TrainingStep one(recipe, kSequences, 1);
  Contest contest = Contest::Wall();
  const size_t with_two = contest.Add([&] { two.Run(); });
  const size_t with_one = contest.Add([&] { one.Run(); });
  contest.Run(state);
  state.counters["speedup"] = contest.TimeRatio(with_one, with_two);
  state.counters["ms"] = 1e3 * contest.Seconds(with_two);
}

void FourTimesTheTokens(benchmark::State& state, const std::string& recipe) {
  TrainingStep small(recipe, kSequences, 1);
  TrainingStep large(recipe, 4 * kSequences, 1);
  Contest contest = Contest::OneThread();
  const size_t with_small = contest.Add([&] { small.Run(); });
  const size_t with_large = contest.Add([&] { large.Run(); });
  contest.Run(state);
  state.counters["time_ratio"] = contest.TimeRatio(with_large, with_small);
}

template <typename Run>
void Register(const std::string& name, int rounds, const Run& run) {
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseManualTime()
      ->Iterations(rounds)
      ->Unit(benchmark::kMillisecond);
}

void RegisterAll(int rounds) {
  Register("step/one_thread", rounds, Recipes);
  for (const std::string recipe : {"bf16", "mxfp8_rceil", "fp32"}) {
    Register("step/threads2/" + recipe, rounds,
             [=](benchmark::State& state) { TwoThreads(state, recipe); });
    Register(
        "step/tokens4/" + recipe, (rounds + 1) / 2,
        [=](benchmark::State& state) { FourTimesTheTokens(state, recipe); });
  }
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
