// What the exchange between virtual ranks costs a training step: the step with
// ranks over the step with one, where rows stay where they are.
#include <benchmark/benchmark.h>

#include <deque>
#include <string>
#include <vector>

#include "contest.h"
#include "program.h"
#include "training_step.h"

namespace isoloss::bench {
namespace {

using expert_parallel::Algorithm;
using expert_parallel::ExchangeOptions;
using expert_parallel::WeightSite;

struct Contender {
  std::string name;
  size_t ranks;
  ExchangeOptions exchange = {};
};

ExchangeOptions Node(const std::string& payload) {
  return {.algorithm = Algorithm::kNode,
          .weight_site = WeightSite::kExpertOut,
          .payload = payload};
}

/// Counters cost_<name>: (step with ranks) / (step with one) - 1.
void Cost(benchmark::State& state, const std::string& preset, size_t sequences,
          int threads, const std::vector<Contender>& contenders) {
  std::deque<TrainingStep> steps;
  Contest contest = threads == 1 ? Contest::OneThread() : Contest::Wall();
  const auto add = [&](size_t ranks, const ExchangeOptions& exchange) {
    TrainingStep& step = steps.emplace_back(StepSetup{.preset = preset,
                                                      .sequences = sequences,
                                                      .threads = threads,
                                                      .ranks = ranks,
                                                      .exchange = exchange});
    return contest.Add([&step] { step.Run(); });
  };
  const size_t one_rank = add(1, {});
  std::vector<size_t> numbers;
  for (const Contender& contender : contenders) {
    numbers.push_back(add(contender.ranks, contender.exchange));
  }
  contest.Run(state);
  for (size_t i = 0; i < contenders.size(); ++i) {
    state.counters["cost_" + contenders[i].name] =
        contest.TimeRatio(numbers[i], one_rank) - 1;
  }
  state.counters["ms_one_rank"] = 1e3 * contest.Seconds(one_rank);
}

void RegisterAll(int rounds) {
  const auto add = [&](const std::string& name, const std::string& preset,
                       size_t sequences, int threads,
                       const std::vector<Contender>& contenders) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [=](benchmark::State& state) {
                                   Cost(state, preset, sequences, threads,
                                        contenders);
                                 })
        ->UseManualTime()
        ->Iterations(rounds)
        ->Unit(benchmark::kMillisecond);
  };
  const std::vector<Contender> few = {{"8", 8}};
  const std::vector<Contender> many = {
      {"8", 8}, {"256", 256}, {"256_node_fp8", 256, Node("mx1x32")}};
  for (const int threads : {1, 2}) {
    const std::string suffix = "/threads" + std::to_string(threads);
    add("exchange/dsv3-small" + suffix, "dsv3-small", 8, threads, few);
    add("exchange/dsv3-671b-topology" + suffix, "dsv3-671b-topology", 32,
        threads, many);
  }
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
