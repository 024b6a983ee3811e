// Writes a power record anew whose ensembles were built again with the same
// members: the figures stay, the ensembles' digests and the record's own are
// those of now.
//
//   seal_power POWER.json ENSEMBLE.h5...
//
// It takes a record whose digest does not fit, so it is no part of the program.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "isoloss/base/error.h"
#include "isoloss/gate/power_record.h"
#include "isoloss/runlog/ensemble.h"

int main(int argc, char** argv) {
  using isoloss::gate::PowerRecord;
  if (argc < 3) {
    fmt::print(stderr, "usage: seal_power POWER.json ENSEMBLE.h5...\n");
    return 2;
  }
  try {
    const nlohmann::json json = nlohmann::json::parse(std::ifstream(argv[1]));
    PowerRecord record{
        .tool_version = json.at("tool_version"),
        .policy_digest = json.at("policy_digest"),
        .experiment = json.at("experiment"),
        .recipe = json.at("recipe"),
        .arm = json.at("arm"),
        .levels = json.at("levels"),
        .bugs = json.at("bugs"),
        .bugs_caught = json.at("bugs_caught"),
        .benign_runs = json.at("benign_runs"),
        .false_alarms = json.at("false_alarms"),
    };
    for (int i = 2; i < argc; ++i) {
      record.ensemble_digests.push_back(
          isoloss::runlog::ReadEnsemble(argv[i]).digest);
    }
    isoloss::gate::WritePowerRecord(record, argv[1]);
    isoloss::gate::ReadPowerRecord(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "seal_power: {}\n", error.what());
    return 3;
  }
  return 0;
}
