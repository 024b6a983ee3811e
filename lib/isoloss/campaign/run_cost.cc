#include "isoloss/campaign/run_cost.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "isoloss/device/devices.h"

namespace isoloss::campaign {

std::string SizeText(double bytes) {
  if (bytes < 0x1p20) return fmt::format("{:.0f} KiB", bytes / 0x1p10);
  if (bytes < 0x1p30) return fmt::format("{:.0f} MiB", bytes / 0x1p20);
  return fmt::format("{:.1f} GiB", bytes / 0x1p30);
}

std::vector<train::Run> OneOfEachArm(const std::vector<train::Run>& runs) {
  std::vector<train::Run> firsts;
  for (const train::Run& run : runs) {
    if (std::ranges::count(firsts, run.arm, &train::Run::arm) == 0) {
      firsts.push_back(run);
    }
  }
  return firsts;
}

ArmRates MeasureArms(const train::Experiment& experiment,
                     const std::vector<train::Run>& runs) {
  ArmRates rates;
  for (const train::Run& run : OneOfEachArm(runs)) {
    rates[run.arm->name] = train::MeasureRate(experiment, *run.arm);
  }
  return rates;
}

std::string RatesText(const ArmRates& rates) {
  std::vector<std::string> measured;
  for (const auto& [arm, rate] : rates) {
    measured.push_back(
        fmt::format("{} {:.3g} GFLOP/s", arm, rate.flops_per_second / 1e9));
  }
  return fmt::format("{}: {}", rates.begin()->second.how,
                     fmt::join(measured, ", "));
}

double ThreadSeconds(const train::Experiment& experiment, const train::Run& run,
                     const ArmRates& rates) {
  return train::EstimatedThreadSeconds(
      experiment, rates.at(run.arm->name).flops_per_second);
}

double TrainingSeconds(const train::Experiment& experiment,
                       const std::vector<train::Run>& runs,
                       const ArmRates& rates) {
  std::vector<double> speeds;
  for (const train::Run& run : runs) {
    speeds.push_back(rates.at(run.arm->name).flops_per_second);
  }
  return train::EstimatedSeconds(experiment, runs, speeds);
}

size_t OracleSteps(size_t candidates, size_t cases) {
  return candidates * cases * static_cast<size_t>(kProbedSteps);
}

std::string MemoryText(const train::Experiment& experiment,
                       const std::vector<train::Run>& runs) {
  if (experiment.parallel.on != device::kCpu) {
    return fmt::format("about {} a run on its device",
                       SizeText(train::EstimatedDeviceBytes(experiment)));
  }
  const double memory = train::EstimatedBytes(experiment);
  const Crew crew = train::CrewFor(experiment, runs.size());
  return fmt::format("at least {}, {} a run",
                     SizeText(memory * crew.side_by_side), SizeText(memory));
}

std::string DiskText(const train::Experiment& experiment,
                     const std::vector<train::Run>& runs) {
  const auto logs =
      static_cast<double>(train::EstimatedLogBytes(experiment, runs.size()));
  return fmt::format(
      "at most {} of logs, and {} of checkpoints while they run",
      SizeText(logs),
      SizeText(train::EstimatedCheckpointBytes(experiment, runs.size())));
}

}  // namespace isoloss::campaign
