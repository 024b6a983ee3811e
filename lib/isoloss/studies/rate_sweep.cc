#include "isoloss/studies/rate_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "isoloss/base/digest.h"
#include "isoloss/base/text_file.h"
#include "isoloss/runlog/tuning.h"
#include "isoloss/stats/summary.h"
#include "isoloss/studies/experiment_file.h"
#include "isoloss/train/experiment_sections.h"

namespace isoloss::studies {
namespace {

constexpr double kDiverged = std::numeric_limits<double>::infinity();

/// The largest rate that train.lr may have.
constexpr double kLargestRate = train::kUnitOpenLow.high;

Cell CellOf(train::Experiment experiment, double rate) {
  experiment.train.lr = rate;
  return {.name = fmt::format("lr-{:g}", rate),
          .experiment = std::move(experiment)};
}

/// Returns the losses of the cell's seeds; empty if a run has not ended.
std::vector<double> LossesOf(const Plan& plan, const Cell& cell) {
  auto ends = EndsOf(plan, cell)[cell.experiment.arms.front().name];
  std::vector<double> losses;
  for (const uint64_t seed : cell.experiment.train.seeds) {
    const auto found = ends.find(static_cast<int64_t>(seed));
    if (found == ends.end()) return {};
    const RunEnd& end = found->second;
    losses.push_back(end.diverged ? kDiverged : end.loss.value_or(kDiverged));
  }
  return losses;
}

/// Returns the rate to be tried next: beyond the edge at which the best one
/// lies. Empty if there is none, or no rate is left.
std::optional<double> NextRate(const SweptRates& swept) {
  const auto optimum = swept.Optimum();
  if (swept.rates.size() >= kMostRates) return std::nullopt;
  if (optimum && optimum->bracketed) return std::nullopt;
  // Lower rates are left where all diverge.
  const bool down = !optimum || optimum->best == 0;
  const double next = down ? swept.rates.front() / 2 : swept.rates.back() * 2;
  if (next > kLargestRate) return std::nullopt;
  return next;
}

void Add(double rate, std::vector<double> losses, SweptRates& swept) {
  const auto place = std::ranges::lower_bound(swept.rates, rate);
  const auto index = place - swept.rates.begin();
  swept.rates.insert(place, rate);
  swept.losses.insert(swept.losses.begin() + index, std::move(losses));
}

/// Trains one more rate in the plan's folder. Returns whether no signal came.
bool TrainFurther(const Plan& plan, Cell cell) {
  Plan further = plan;
  cell.seconds = plan.cells.front().seconds;
  further.cells = {std::move(cell)};
  PrepareFolder(further);
  return Train(further);
}

}  // namespace

std::vector<double> SweptRates::Means() const {
  std::vector<double> means;
  for (const auto& of_rate : losses) means.push_back(stats::Mean(of_rate));
  return means;
}

std::optional<stats::RateOptimum> SweptRates::Optimum() const {
  return stats::FindRateOptimum(rates, Means());
}

std::vector<double> SweptRates::SeedOptima() const {
  std::vector<double> optima;
  for (size_t seed = 0; seed < seeds.size(); ++seed) {
    std::vector<double> of_seed;
    for (const auto& of_rate : losses) of_seed.push_back(of_rate[seed]);
    const auto optimum = stats::FindRateOptimum(rates, of_seed);
    if (!optimum || !optimum->bracketed) return {};
    optima.push_back(optimum->rate);
  }
  return optima;
}

std::optional<std::pair<double, double>> SweptRates::Spread() const {
  const std::vector<double> optima = SeedOptima();
  if (optima.empty()) return std::nullopt;
  return std::pair(std::ranges::min(optima), std::ranges::max(optima));
}

Plan PlanRates(const train::Experiment& experiment, size_t seeds,
               const std::filesystem::path& folder) {
  const train::Experiment base = OnSeedsOfItsOwn(experiment, seeds);
  Plan plan{.kind = "rates", .folder = folder, .cells = {}, .text = {}};
  for (int i = 0; i < kFirstRates; ++i) {
    const double rate = std::ldexp(base.train.lr, i - kFirstRates / 2);
    if (rate <= kLargestRate) plan.cells.push_back(CellOf(base, rate));
  }
  plan.text = BeginPlanText(plan.kind, "experiment", PlannedToml(base)).text();
  return plan;
}

std::optional<SweptRates> SweepRates(const Plan& plan, bool may_train) {
  const train::Experiment& base = plan.cells.front().experiment;
  SweptRates swept{.seeds = base.train.seeds, .rates = {}, .losses = {}};
  for (const Cell& cell : plan.cells) {
    std::vector<double> losses = LossesOf(plan, cell);
    if (losses.empty()) ThrowNothingToJudge(plan);
    Add(cell.experiment.train.lr, std::move(losses), swept);
  }
  while (const auto rate = NextRate(swept)) {
    const Cell cell = CellOf(base, *rate);
    if (may_train && !TrainFurther(plan, cell)) return std::nullopt;
    std::vector<double> losses = LossesOf(plan, cell);
    if (losses.empty()) break;
    Add(*rate, std::move(losses), swept);
  }
  return swept;
}

train::TuningConfig TuningOf(const SweptRates& swept,
                             const train::Experiment& experiment) {
  train::TuningConfig tuning{.rates = swept.rates,
                             .seeds = swept.seeds,
                             .seed_optima = swept.SeedOptima()};
  for (double& rate : tuning.seed_optima) {
    rate = std::stod(fmt::format("{:.4g}", rate));
  }
  constexpr double kDigits = 1e6;  // of a loss, more than seeds agree in
  for (const double loss : swept.Means()) {
    tuning.held_out.push_back(std::round(loss * kDigits) / kDigits);
  }
  tuning.configuration = runlog::TuningDigest(
      experiment.ResolvedToml(),
      DigestToHex(train::LoadCorpusOf(experiment).digest()),
      experiment.arms.front().name);
  return tuning;
}

std::string TuningText(const train::TuningConfig& tuning,
                       std::optional<double> scaled_parameters) {
  config::Writer writer;
  train::ScaledTuningConfig scaled{scaled_parameters, tuning};
  writer.Section(scaled_parameters ? "tuning.scaled" : "tuning");
  // Without parameters it has the keys of [tuning] alone.
  Visit(writer, scaled);
  return writer.text();
}

std::string WithTuning(const std::filesystem::path& file,
                       const std::string& table) {
  const std::string heading = table.substr(0, table.find('\n'));
  std::string text =
      WithTable(ReadTextFile(file, "Give an experiment file."), heading, table);
  ParseRewrite(text, file);
  return text;
}

}  // namespace isoloss::studies
