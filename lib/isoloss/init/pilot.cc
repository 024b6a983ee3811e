#include "isoloss/init/pilot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/temporary_folder.h"
#include "isoloss/campaign/train_arms.h"
#include "isoloss/compare/final_window.h"
#include "isoloss/init/experiment_size.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/stats/power.h"
#include "isoloss/stats/summary.h"

namespace isoloss::init {
namespace {

using runlog::RunLog;

constexpr uint64_t kFirstPilotSeed = 1001;
constexpr size_t kFifths = 5;
constexpr size_t kFirstFifth = 2;

/// Returns the mean training loss of a fifth of the steps.
double TrainingLoss(const RunLog& log, size_t fifth) {
  const std::vector<double>& losses = log.steps.loss_nats;
  const size_t begin = fifth * losses.size() / kFifths;
  const size_t end = (fifth + 1) * losses.size() / kFifths;
  return stats::Mean(std::span(losses).subspan(begin, end - begin));
}

/// Returns the held-out loss at the end of a fifth. The first evaluation comes
/// before all steps.
double HeldOutLoss(const RunLog& log, size_t fifth) {
  const std::vector<double>& losses = log.eval.loss_nats;
  return losses.at(std::min(fifth + 1, losses.size() - 1));
}

/// Adds a variance for each of the later fifths. It is the variance over seeds
/// of the arm's differences from the baseline, in percent squared.
void AddVariances(const std::vector<RunLog>& baseline,
                  const std::vector<RunLog>& arm,
                  double (*loss)(const RunLog&, size_t),
                  std::vector<double>& variances) {
  for (size_t fifth = kFirstFifth; fifth < kFifths; ++fifth) {
    std::vector<double> percents;
    for (size_t seed = 0; seed < arm.size(); ++seed) {
      percents.push_back(compare::PercentDifference(
          loss(arm[seed], fifth), loss(baseline[seed], fifth)));
    }
    const double sd = stats::Summarize(percents).sd;
    if (std::isfinite(sd)) variances.push_back(sd * sd);
  }
}

/// Returns the spread of `logs`, which have all arms of the first seed, then
/// all arms of the next one.
double PooledSpread(std::vector<RunLog> logs, size_t arms) {
  std::vector<std::vector<RunLog>> of_arm(arms);
  for (size_t i = 0; i < logs.size(); ++i) {
    of_arm[i % arms].push_back(std::move(logs[i]));
  }
  double largest = 0;
  for (const auto loss : {&TrainingLoss, &HeldOutLoss}) {
    std::vector<double> variances;
    for (size_t arm = 1; arm < arms; ++arm) {
      AddVariances(of_arm[0], of_arm[arm], loss, variances);
    }
    if (variances.empty()) continue;
    largest = std::max(largest, std::sqrt(stats::Mean(variances)));
  }
  return largest;
}

}  // namespace

double Spread::After(int64_t later) const {
  return percent * std::sqrt(std::max(1.0, static_cast<double>(later) /
                                               static_cast<double>(steps)));
}

Spread AssumedSpread() { return {.percent = 0.2, .steps = kPilotSteps}; }

train::Experiment PilotOf(train::Experiment experiment, int64_t steps) {
  std::erase_if(experiment.arms, [&](const train::Arm& arm) {
    return std::ranges::count(experiment.gate.control, arm.name) != 0;
  });
  experiment.gate.control.clear();
  experiment.name = "pilot";
  experiment.train.warmup_steps = experiment.train.warmup_steps * steps /
                                  std::max<int64_t>(experiment.train.steps, 1);
  experiment.train.steps = steps;
  experiment.train.seeds.clear();
  for (uint64_t i = 0; i < kPilotSeeds; ++i) {
    experiment.train.seeds.push_back(kFirstPilotSeed + i);
  }
  experiment.log.eval_every = steps / static_cast<int64_t>(kFifths);
  return experiment;
}

std::optional<Spread> TrainPilot(const train::Experiment& pilot) {
  // With kPilotSeeds seeds two arms have 6 degrees of freedom. Their fifths
  // count as repetitions that add none. So the factor is the root of 6 over
  // 3.070, the 0.2 quantile of chi squared.
  constexpr double kUpper = 1.398;
  const TemporaryFolder folder;
  const campaign::TrainingPlan plan = campaign::PlanTraining(pilot);
  const campaign::ExecutedRuns executed =
      campaign::TrainArms(pilot, plan, folder.path(), {.how_to_go_on = ""});
  if (executed.interrupted) {
    fmt::print(stderr,
               "isoloss: interrupted by a signal in the pilot. No file was "
               "written.\n");
    return std::nullopt;
  }
  std::vector<RunLog> logs;
  for (const auto& file : executed.logs)
    logs.push_back(runlog::ReadRunLog(file));
  const double percent =
      kUpper * PooledSpread(std::move(logs), pilot.arms.size());
  if (!(percent > 0)) return AssumedSpread();
  return Spread{
      .percent = percent, .steps = pilot.train.steps, .measured = true};
}

double PowerOf(double spread_percent, size_t pairs,
               const gate::Policy& policy) {
  return stats::EquivalencePower(0, spread_percent, static_cast<int64_t>(pairs),
                                 {.margin = policy.margin_percent,
                                  .alpha = policy.alpha,
                                  .one_sided = policy.one_sided});
}

std::string SpreadText(const Spread& spread) {
  if (!spread.measured) return "an assumption, as no pilot was trained";
  return fmt::format("a pilot of {} seeds and {} steps, upper limit at 80 %",
                     kPilotSeeds, spread.steps);
}

std::optional<double> ExpectedPower(const train::Experiment& experiment,
                                    const gate::Policy& policy) {
  const size_t pairs = experiment.train.seeds.size();
  if (!experiment.gate.spread_percent || policy.InTokens() || pairs < 2) {
    return std::nullopt;
  }
  return PowerOf(*experiment.gate.spread_percent, pairs, policy);
}

std::string PowerText(double power) {
  return power >= kEnoughPower ? fmt::format("above {:g}", kEnoughPower)
                               : fmt::format("{:.2f}", power);
}

}  // namespace isoloss::init
