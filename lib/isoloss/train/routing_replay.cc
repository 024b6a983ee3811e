#include "isoloss/train/routing_replay.h"

#include <algorithm>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/runlog/reader.h"

namespace isoloss::train {
namespace {

void RequireSize(const std::filesystem::path& path, const char* what,
                 int64_t found, size_t needed) {
  if (found == static_cast<int64_t>(needed)) return;
  ThrowError(ErrorKind::kConfig,
             "{}: the log's routing has {} {}, but this experiment needs {}. "
             "Replay a log of the same model and batch.",
             path.string(), found, what, needed);
}

void RequireShape(const std::filesystem::path& path,
                  const runlog::MoeColumns& moe, const RoutingShape& needed) {
  if (moe.expert_ids.empty()) {
    ThrowError(ErrorKind::kConfig,
               "{}: the log holds no expert ids (/moe/expert_ids), but replay "
               "needs them. Make it again with log.routing = true.",
               path.string());
  }
  RequireSize(path, "MoE layers", moe.layers, needed.layers);
  RequireSize(path, "tokens a step", moe.tokens, needed.tokens);
  RequireSize(path, "experts a token", moe.top_k, needed.top_k);
  // Logs that keep nothing but ids lack this number.
  if (moe.experts != 0) {
    RequireSize(path, "experts a layer", moe.experts, needed.experts);
  }
}

}  // namespace

RoutingShape ShapeOf(const Experiment& experiment) {
  return {.layers = experiment.model.n_moe_layers(),
          .tokens = experiment.train.sequences_per_batch *
                    experiment.data.sequence_length,
          .top_k = experiment.model.top_k,
          .experts = experiment.model.num_experts};
}

RoutingReplay::RoutingReplay(const std::filesystem::path& path,
                             const RoutingShape& needed)
    : path_(path), shape_(needed) {
  runlog::MoeColumns moe = std::move(runlog::ReadRunLog(path).moe);
  RequireShape(path, moe, needed);
  step_ = std::move(moe.step);
  ids_ = std::move(moe.expert_ids);
  CheckIds();
}

void RoutingReplay::CheckIds() const {
  const auto experts = static_cast<int32_t>(shape_.experts);
  for (const int64_t step : step_) {
    for (size_t layer = 0; layer < shape_.layers; ++layer) {
      const MatrixView<const int32_t> ids = Ids(step, layer);
      for (size_t token = 0; token < ids.rows(); ++token) {
        const int32_t* begin = ids.Row(token);
        const int32_t* end = begin + ids.cols();
        for (const int32_t* id = begin; id < end; ++id) {
          const bool in_range = *id >= 0 && *id < experts;
          if (in_range && std::find(begin, id, *id) == id) continue;
          ThrowError(ErrorKind::kFormat,
                     "{}: /moe/expert_ids of step {}, MoE layer {}, token {} "
                     "hold {}{}, but must be distinct and from 0 to {}. The "
                     "log is damaged; make it again.",
                     path_.string(), step, layer, token, *id,
                     in_range ? " twice" : "", experts - 1);
        }
      }
    }
  }
}

void RoutingReplay::RequireSteps(int64_t steps) const {
  for (int64_t step = 1; step <= steps; ++step) Ids(step, 0);
}

MatrixView<const int32_t> RoutingReplay::Ids(int64_t step, size_t layer) const {
  ISOLOSS_ASSERT(layer < shape_.layers);
  const auto found = std::lower_bound(step_.begin(), step_.end(), step);
  if (found == step_.end() || *found != step) {
    ThrowError(ErrorKind::kConfig,
               "{}: the log has no routing of step {}, only of {} steps from "
               "{} to {}. Replay a log of at least as many steps.",
               path_.string(), step, step_.size(), step_.front(), step_.back());
  }
  const size_t row = static_cast<size_t>(found - step_.begin());
  const size_t size = shape_.tokens * shape_.top_k;
  return {ids_.data() + (row * shape_.layers + layer) * size, shape_.tokens,
          shape_.top_k};
}

uint64_t RoutingReplay::digest() const {
  Digest digest;
  digest.Update(step_.data(), step_.size() * sizeof(step_[0]));
  digest.Update(ids_.data(), ids_.size() * sizeof(ids_[0]));
  return digest.Value();
}

void CheckReplays(const Experiment& experiment) {
  if (experiment.routing.mode != RoutingMode::kReplay) return;
  for (const uint64_t seed : experiment.train.seeds) {
    RoutingReplay(experiment.ReplayPath(seed), ShapeOf(experiment))
        .RequireSteps(experiment.train.steps);
  }
}

}  // namespace isoloss::train
