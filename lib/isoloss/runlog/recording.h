// Tells what a run was asked to record: the columns that its log must have, and
// the steps whose rows it must have.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "isoloss/runlog/schema.h"

namespace isoloss::runlog {

/// Returns the keys of a resolved experiment, `section.key`, with their values
/// as written there. Those of the n-th table [[section]] are `section.n.key`,
/// from 0.
std::map<std::string, std::string> KeysOf(const std::string& experiment_text);

/// Reads the attributes of a run, its experiment's text above all. Keys that
/// the text lacks were not asked for, and count as 0.
class Recording {
 public:
  explicit Recording(const Provenance& provenance);

  /// Returns the keys that this class needs and the text lacks, or has without
  /// a number, divided by commas; "" if there are none.
  const std::string& missing_keys() const { return missing_keys_; }

  /// Decides by the attributes alone; kPairs depends on the recorded rows, too.
  bool IsDue(When when) const;
  bool HasStatistics(int64_t step) const { return statistics_.Includes(step); }
  bool HasDigests(int64_t step) const { return digests_.Includes(step); }

  /// Returns the steps of /eval of a run that ended after step `last`: 0, the
  /// multiples of `eval_every` and the last one planned.
  std::vector<int64_t> EvaluatedSteps(int64_t last) const;
  /// Returns likewise the steps of /tensors.
  std::vector<int64_t> TensorSteps(int64_t last) const;

  int64_t moe_layers() const { return moe_layers_; }
  int64_t experts() const { return experts_; }
  int64_t top_k() const { return top_k_; }
  int64_t eval_sequences() const { return eval_sequences_; }

 private:
  /// The set contains the first steps and each multiple of `every`.
  struct Steps {
    int64_t first = 0;
    int64_t every = 0;
    bool Includes(int64_t step) const {
      return step >= 1 && (step <= first || (every > 0 && step % every == 0));
    }
    bool any() const { return first > 0 || every > 0; }
  };

  int64_t Number(const std::string& key);

  std::map<std::string, std::string> keys_;
  std::string missing_keys_;
  bool has_transport_;
  bool has_routing_;
  bool has_replay_;
  int64_t steps_planned_;
  int64_t moe_layers_;
  int64_t experts_;
  int64_t top_k_;
  int64_t eval_every_;
  int64_t eval_sequences_;
  Steps statistics_;
  Steps digests_;
};

}  // namespace isoloss::runlog
