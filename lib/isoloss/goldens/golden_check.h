// Runs the experiments of goldens again, in every lane of their suites, and
// compares.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/device/devices.h"
#include "isoloss/gate/verdict.h"
#include "isoloss/goldens/golden_lanes.h"
#include "isoloss/system/exit_code.h"
#include "isoloss/verify/probe_runs.h"

namespace isoloss::goldens {

struct GoldenCheckPlan {
  std::vector<std::filesystem::path> folders = {};  ///< {}: golden/curves/*
  std::filesystem::path out = {};  ///< keeps what is computed; "": nothing does
  bool draft = false;              ///< take goldens of a modified source
  /// The runs of the goldens compute there; lanes do not.
  std::string on = device::kCpu;
  /// Tests use it to plant faults in all arms but the baseline. No lanes are
  /// run then.
  verify::MakeHooks plant = {};
};

/// A LaneOutcome belongs to one lane of the suite.
struct LaneOutcome {
  static constexpr const char* kPass = "pass";
  static constexpr const char* kFail = "fail";
  static constexpr const char* kNotRun = "not run";

  std::string lane;
  std::string outcome;  ///< one of the above
  std::string why;      ///< "" if it passes
};

/// An ArmOutcome belongs to the statistical lane of one arm.
struct ArmOutcome {
  std::string arm;
  gate::Outcome outcome;
  std::string levels;  ///< what each level found, on one line
};

/// Collects what the check found in one folder.
struct CheckedGoldens {
  std::filesystem::path folder = {};
  system::ExitCode code =
      system::ExitCode::kPass;  ///< of all lanes but `exact`
  bool drift = false;           ///< some golden is not reproduced
  std::vector<ExactLane> exact = {};
  std::vector<LaneOutcome> lanes = {};
  std::vector<ArmOutcome> statistical = {};
};

/// Calls `on_checked` for each folder, in their order, as soon as the folder is
/// judged. Returns false if a signal came first.
/// Errors   ConfigError, FormatError or IoError, before anything is computed,
///          for the first folder that is not what `golden update` wrote.
///          ConfigError if this process is part of a job of several processes,
///          or if a folder below `out` that it computes in holds files.
bool CheckGoldens(const GoldenCheckPlan& plan,
                  const std::function<void(const CheckedGoldens&)>& on_checked);

}  // namespace isoloss::goldens
