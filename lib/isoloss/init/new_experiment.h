// Writes an experiment file for a text of the user's, of a size that fits a
// budget.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/campaign/run_cost.h"
#include "isoloss/device/devices.h"
#include "isoloss/gate/policy.h"
#include "isoloss/init/pilot.h"
#include "isoloss/train/experiment.h"

namespace isoloss::init {

struct NewExperiment {
  std::vector<std::filesystem::path> paths = {};
  std::filesystem::path out = {};         ///< "": NAME.toml
  std::string name = {};                  ///< "": CANDIDATE_vs_bf16
  std::string candidate = "mxfp8_rceil";  ///< a registered recipe
  std::string preset = "dsv3-nano";
  std::string on = device::kCpu;
  /// With "uint16" or "uint32", `paths` are token files; with "" they are text.
  std::string token_type = {};
  double budget_minutes = 10;
  double margin_percent = gate::kOwnMarginPercent;
  /// Trains before it plans: a sweep of learning rates, parts of the control,
  /// and a pilot that shows the spread of seed pairs.
  bool pilot = true;
};

/// Describes what was written, and what it will cost here.
struct WrittenExperiment {
  train::Experiment experiment;  ///< as read back from the text
  std::string corpus = {};       ///< its description
  size_t training_tokens = 0;
  size_t held_out_tokens = 0;
  double readings = 0;  ///< how often each token is read in a run, on average
  campaign::ArmRates rates = {};
  double training_seconds = 0;
  double oracle_seconds = 0;
  Spread spread = {};  ///< that it was planned with
  /// Recipes that do not differ pass with this probability.
  double power = 0;
  std::vector<std::string> notes = {};  ///< what to know of the corpus

  double Seconds() const { return training_seconds + oracle_seconds; }
};

/// Writes a commented experiment file: BF16 against the candidate, with a null
/// arm and a control. Steps are those of most power that the budget allows
/// (MostTellingSize), by the speed of a few steps and AssumedSpread. A sweep of
/// so many steps finds the learning rate. At that rate the control is graded,
/// if half of the budget trains its parts (studies::ReadParts), and a pilot
/// shows the spread, by which the seeds are chosen. The file is whole or
/// absent, and reads back.
/// Special  empty if a signal ended one of the three: no file is written.
/// Errors   ConfigError if a file is there, a name, recipe, preset or path is
///          of no use, the text is far too short or the budget too small; as
///          train::LoadCorpusOf; IoError if the file can't be written.
std::optional<WrittenExperiment> WriteExperiment(const NewExperiment& request);

}  // namespace isoloss::init
