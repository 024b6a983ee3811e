// Writes the text of a new experiment file, with a comment on each key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/device/devices.h"
#include "isoloss/gate/policy.h"

namespace isoloss::init {

/// Returns the steps between held-out losses. They are a fifth of the steps,
/// which are whole tens, so the last step has a held-out loss.
constexpr int64_t EvalEvery(int64_t steps) { return steps / 5; }

struct ExperimentText {
  std::string name;
  std::string preset;
  std::string on = device::kCpu;
  size_t vocab_size = 0;        ///< 0: the preset's
  std::string token_type = {};  ///< "uint16", "uint32", or "": text
  std::vector<std::string> paths = {};
  std::string baseline;      ///< a recipe, which is the arm's name too
  std::string candidate;     ///< likewise
  std::string control = {};  ///< a recipe that is known to be worse; "": none
  /// Names of gate.control, the mildest first; unless `control` is "".
  std::vector<std::string> controls = {"control"};
  std::string graded = {};  ///< arms of parts of the control; "": none
  int64_t steps = 0;
  std::optional<double> lr = {};  ///< empty: the preset's
  std::string tuning = {};        ///< [tuning]; "": no rate was tuned
  size_t seeds = 0;               ///< 1 to this one
  size_t eval_sequences = 1;
  double margin_percent = gate::kOwnMarginPercent;
  double spread_percent = 0;     ///< expected after `steps`
  std::string spread_from = {};  ///< where that comes from, on one line

  /// Returns TOML that train::ParseExperiment reads.
  std::string Toml() const;
};

}  // namespace isoloss::init
