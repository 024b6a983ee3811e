#include "isoloss/init/preparation.h"

#include <fmt/format.h>

#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "isoloss/base/temporary_folder.h"
#include "isoloss/init/experiment_size.h"
#include "isoloss/report/live_view.h"
#include "isoloss/studies/experiment_file.h"
#include "isoloss/studies/graded_controls.h"
#include "isoloss/studies/rate_sweep.h"

namespace isoloss::init {
namespace {

/// Trains the runs of `plan` and says so. Returns whether no signal came.
bool TrainFor(const std::string& purpose, const studies::Plan& plan) {
  fmt::print(stderr, "isoloss: {}, about {}. --no-pilot leaves it out.\n",
             purpose, report::DurationText(plan.Seconds()));
  studies::PrepareFolder(plan);
  return studies::Train(plan);
}

double SecondsOf(const train::Experiment& experiment,
                 const campaign::ArmRates& rates) {
  return campaign::TrainingSeconds(experiment, train::PlanRuns(experiment),
                                   rates);
}

}  // namespace

bool TuneRate(const train::Experiment& experiment,
              const campaign::ArmRates& rates, ExperimentText& text) {
  const TemporaryFolder folder;
  studies::Plan plan = studies::PlanRates(experiment, studies::kOwnSeeds,
                                          folder.path() / "rates");
  for (studies::Cell& cell : plan.cells) {
    cell.seconds = SecondsOf(cell.experiment, rates);
  }
  const std::string purpose = fmt::format(
      "sweep: {} learning rates x {} seeds of {} steps show which rate is best",
      plan.cells.size(), studies::kOwnSeeds, text.steps);
  if (!TrainFor(purpose, plan)) return false;
  const auto swept = studies::SweepRates(plan, /*may_train=*/true);
  if (!swept) return false;
  const auto optimum = swept->Optimum();
  if (!optimum) return true;  // the preset's rate stays, and untuned
  text.lr = swept->rates[optimum->best];
  text.tuning = studies::TuningText(studies::TuningOf(*swept, experiment));
  return true;
}

bool GradeControl(const train::Experiment& experiment, campaign::ArmRates rates,
                  double budget, double oracle, ExperimentText& text) {
  constexpr double kShare = 0.5;
  if (text.control.empty()) return true;
  const TemporaryFolder folder;
  studies::Plan plan = studies::PlanControls(experiment, studies::kOwnSeeds,
                                             folder.path() / "controls");
  studies::Cell& cell = plan.cells.front();
  for (const train::Arm& part : cell.experiment.arms) {
    rates.emplace(part.name, rates.at(experiment.gate.control.front()));
  }
  cell.seconds = SecondsOf(cell.experiment, rates);
  train::Experiment least = experiment;
  least.train.seeds.resize(kFewestSeeds);
  least.arms.insert(least.arms.end(), std::size(studies::kGrades),
                    cell.experiment.arms.back());
  if (plan.Seconds() > kShare * budget ||
      oracle + SecondsOf(least, rates) > budget) {
    return true;  // the control stays, and ungraded
  }
  const std::string purpose = fmt::format(
      "control: {} arms x {} seeds of {} steps show which parts of it harm by "
      "about a margin",
      cell.experiment.arms.size(), studies::kOwnSeeds, text.steps);
  if (!TrainFor(purpose, plan)) return false;
  const studies::GradedControl graded = studies::ReadParts(plan, experiment);
  text.controls = graded.Controls();
  text.graded = graded.ArmsText();
  return true;
}

}  // namespace isoloss::init
