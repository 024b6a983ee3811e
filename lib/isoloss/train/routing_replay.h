// Reads the expert ids of an earlier run and returns them step by step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "isoloss/base/matrix.h"
#include "isoloss/model/routing_source.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {

/// Gives the sizes of an experiment's routing in one step.
struct RoutingShape {
  size_t layers = 0;  ///< with experts
  size_t tokens = 0;
  size_t top_k = 0;
  size_t experts = 0;
};

/// Returns the shape of the experiment's training steps.
RoutingShape ShapeOf(const Experiment& experiment);

/// Holds the routing of a run log that was made with log.routing = true.
class RoutingReplay {
 public:
  /// Reads the log.
  /// Errors   as runlog::ReadRunLog; ConfigError if the log holds no expert ids
  ///          or ids of a different shape; FormatError if its steps do not
  ///          ascend, or a token's ids are out of range or not distinct.
  RoutingReplay(const std::filesystem::path& path, const RoutingShape& needed);

  /// Throws ConfigError unless the log has steps 1 to `steps`.
  void RequireSteps(int64_t steps) const;

  /// Shapes   [tokens, top_k]; valid as long as this object. `layer` counts
  ///          from the first layer with experts.
  /// Errors   ConfigError if the log has no such step.
  MatrixView<const int32_t> Ids(int64_t step, size_t layer) const;

  /// Digests all ids and steps, on which a replayed run's bits depend.
  uint64_t digest() const;

 private:
  void CheckIds() const;

  std::filesystem::path path_;
  RoutingShape shape_;
  std::vector<int64_t> step_;
  std::vector<int32_t> ids_;  // [steps, layers, tokens, top_k]
};

/// Throws ConfigError unless the logs that [routing] replays exist for every
/// seed, fit, and have all of the experiment's steps.
void CheckReplays(const Experiment& experiment);

/// Returns a step's ids as the model asks for them.
class ReplayedStep : public model::RoutingSource {
 public:
  explicit ReplayedStep(const RoutingReplay& replay) : replay_(replay) {}
  void BeginStep(int64_t step) { step_ = step; }
  void Choose(size_t layer, size_t token,
              std::span<int32_t> expert_ids) const override {
    const auto ids = replay_.Ids(step_, layer);
    std::copy_n(ids.Row(token), expert_ids.size(), expert_ids.begin());
  }

 private:
  const RoutingReplay& replay_;
  int64_t step_ = 0;
};

}  // namespace isoloss::train
